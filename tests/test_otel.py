"""The attributes of OpenTelemetry's conventions for generative AI, by version; the names are those of the published registries."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from conftest import Backend
from deltafold import OTEL_VERSIONS, Timing, otel_attributes
from streams import chunk, sse

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
WHOLE = sse(
    {"id": "chatcmpl-o", "model": "m-1-2026"} | chunk({"content": "a"}, 1),
    chunk({"content": "b"}, 0),
    chunk({}, 0, finish_reason="stop"),
    chunk({}, 1, finish_reason="tool_calls"),
    {"choices": [], "usage": USAGE},
)
BASE = {
    "gen_ai.response.id": "chatcmpl-o",
    "gen_ai.response.model": "m-1-2026",
    "gen_ai.response.finish_reasons": ["stop", "tool_calls"],
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 50,
}
READ = {"gen_ai.usage.cache_read.input_tokens": 80}
CREATION = {"gen_ai.usage.cache_creation.input_tokens": 5}
REASONING = {"gen_ai.usage.reasoning.output_tokens": 0, "gen_ai.response.time_to_first_chunk": 0.25}
EXPECTED = {
    "1.36.0": BASE,
    "1.37.0": BASE,
    "1.40.0": BASE | READ | CREATION,
    "1.41.0": BASE | READ | CREATION | REASONING,
    "genai-0.1.0": BASE | READ | {"gen_ai.usage.cache_write.input_tokens": 5} | REASONING,
}


def of(backend: Backend, data: bytes, closed: bool = True) -> Any:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(data)
    if closed:
        accumulator.close()
    return accumulator


@pytest.mark.parametrize("version", EXPECTED)
def test_versions(backend: Backend, version: str) -> None:
    assert otel_attributes(of(backend, WHOLE), version=version, timing=0.25) == EXPECTED[version]


def test_every_version_is_tested_and_the_last_is_the_default(backend: Backend) -> None:
    assert tuple(EXPECTED) == OTEL_VERSIONS
    assert otel_attributes(of(backend, WHOLE), timing=0.25) == EXPECTED[OTEL_VERSIONS[-1]]
    with pytest.raises(ValueError, match=r"one of 1\.36\.0, .*, not '2\.0'"):
        otel_attributes(of(backend, WHOLE), version="2.0")


def test_a_timing(backend: Backend) -> None:
    timing = Timing(0.1, 0.5, 2.0, 2.1, 2.2, (0,) * 14)
    name = "gen_ai.response.time_to_first_chunk"
    assert otel_attributes(of(backend, WHOLE), timing=timing)[name] == 0.5
    assert name not in otel_attributes(of(backend, WHOLE), timing=Timing(None, None, None, None, 1.0, (0,) * 14))
    assert name not in otel_attributes(of(backend, WHOLE))


@pytest.mark.parametrize("version", OTEL_VERSIONS)
def test_a_stream_that_broke_off(backend: Backend, version: str) -> None:
    data = sse(chunk({"content": "a"}, 0, finish_reason="stop"), chunk({"content": "b"}, 1))
    ended = ["stop", "error"] if version == "genai-0.1.0" else ["stop"]
    assert otel_attributes(of(backend, data), version=version) == {
        "gen_ai.response.finish_reasons": ended,
        "error.type": "truncated",
    }
    assert otel_attributes(of(backend, data, closed=False), version=version) == {
        "gen_ai.response.finish_reasons": ["stop"]
    }


def test_an_error_and_nothing_else(backend: Backend) -> None:
    told = [
        otel_attributes(of(backend, sse({"error": error})))
        for error in ({"message": "m", "code": 529}, {"message": "m", "type": "overloaded"}, {"message": "m"}, "text")
    ]
    assert told == [{"error.type": kind} for kind in ("529", "overloaded", "upstream-error", "upstream-error")]
    assert otel_attributes(of(backend, b"", closed=False)) == {}


@pytest.mark.parametrize("value", [None, "12", 1.5, -1, True, {}, []])
def test_only_counts_count(backend: Backend, value: Any) -> None:
    data = sse(chunk({}, finish_reason="stop") | {"usage": {"prompt_tokens": value, "completion_tokens": 4}})
    assert otel_attributes(of(backend, data)) == {
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.output_tokens": 4,
    }


@pytest.mark.parametrize(
    ("module", "peer"),
    [
        ("deltafold", "opentelemetry openai litellm pydantic msgspec jiter jsonschema_rs"),
        ("deltafold.openai", "openai pydantic jiter"),
        ("deltafold.litellm", "litellm openai pydantic"),
        ("deltafold.events", "openai pydantic"),
    ],
)
def test_no_peer_is_imported_before_it_is_used(module: str, peer: str) -> None:
    code = f"import sys, {module}; print([name for name in {peer.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
