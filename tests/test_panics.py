"""A fault inside the extension: no panic crosses into Python, `feed` stays harmless, and nobody takes the rest for whole."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import load
from deltafold import Seen
from deltafold._errors import InternalError
from streams import END, chunk, sse

STREAM = sse(chunk({"content": "hi"}), *END)


@pytest.fixture
def fed() -> Any:
    """An accumulator of the extension that holds text."""
    acc = load("rust").ChatCompletionAccumulator()
    acc.feed(sse(chunk({"content": "hi"})))
    return acc


def assert_broken(acc: Any) -> None:
    assert isinstance(acc.error, InternalError)
    assert acc.error.kind == "internal-error"
    assert acc.feed(STREAM) == 0
    assert acc.feed_chunk(chunk({"content": "more"})) == 0
    assert acc.close("eof") == 0
    assert acc.close_reason == "eof"
    assert acc.result() == {"object": "chat.completion", "choices": []}
    assert (acc.text(), acc.complete, acc.counts["bytes"]) == ("", False, 0)
    with pytest.raises(InternalError):
        acc.raise_for_error()


def test_a_panic_in_feed(fed: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert fed._panic(False) == Seen.ERROR
    assert_broken(fed)
    said = capfd.readouterr().err
    assert said.startswith("deltafold: a fault at ")
    assert "as asked" not in said  # a panic's message may hold text of the stream


def test_a_panic_while_reading(fed: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InternalError):
        fed._panic(True)
    assert_broken(fed)
    assert "as asked" not in capfd.readouterr().err


def test_a_panic_after_an_error_was_told(fed: Any, capfd: pytest.CaptureFixture[str]) -> None:
    fed.feed(b'data: {"error":"upstream"}\n\n')
    assert fed.error.kind == "upstream-error"
    fed._panic(False)
    assert_broken(fed)


def test_other_accumulators_go_on(fed: Any, capfd: pytest.CaptureFixture[str]) -> None:
    fed._panic(False)
    other = load("rust").ChatCompletionAccumulator()
    other.feed(STREAM)
    assert (other.text(), other.complete, other.error) == ("hi", True, None)
