"""deltafold.litellm beside the real LiteLLM."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

import deltafold.litellm
import peers
from conftest import Backend, recipes
from deltafold.litellm import stream_chunk_builder
from streams import chunk

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*ReadOnly:UserWarning"),  # litellm's own
    pytest.mark.filterwarnings("ignore:.*[Ss]erializ.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
HEAD = {"id": "chatcmpl-own", "object": "chat.completion.chunk", "created": 1767225600, "model": "m-1"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
MESSAGES = [{"role": "user", "content": "hi"}]


def call(index: int | None, arguments: str, **head: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": head.pop("name")} if "name" in head else {})
    return ({} if index is None else {"index": index}) | head | {"function": function}


TEXT = [
    chunk({"role": "assistant", "content": "Hel"}),
    chunk({"content": "lo"}),
    chunk({}, finish_reason="stop"),
    {"choices": [], "usage": USAGE},
]
ALIKE: dict[str, list[dict[str, Any]]] = {
    "text": TEXT,
    "reasoning": [chunk({"reasoning_content": "hm"}), chunk({"content": "so"}), chunk({}, finish_reason="stop") | {"usage": USAGE}],
    "calls": [
        chunk({"role": "assistant", "tool_calls": [call(0, "", id="c0", name="f", type="function")]}),
        chunk({"tool_calls": [call(0, '{"q":1}')]}),
        chunk({"tool_calls": [call(1, "{}", id="c1", name="g", type="function")]}),
        chunk({}, finish_reason="tool_calls") | {"usage": USAGE},
    ],
    "thinking": [
        chunk({"reasoning_content": "a", "thinking_blocks": [{"type": "thinking", "thinking": "a"}]}),
        chunk({"reasoning_content": "a", "thinking_blocks": [{"type": "thinking", "thinking": "a"}]}),
        chunk({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "s1"}]}),
        chunk({"thinking_blocks": [{"type": "redacted_thinking", "data": "xx"}]}),
        chunk({"thinking_blocks": [{"type": "thinking", "thinking": "b", "signature": "s2"}]}),
        chunk({"content": "so"}),
        chunk({}, finish_reason="stop") | {"usage": USAGE},
    ],
    "provider-specific-fields": [
        chunk({"content": "a"}),
        *(chunk({"provider_specific_fields": {"citation": {"cited_text": text, "type": "page"}}}) for text in ("x", "y", "y")),
        *(chunk({"provider_specific_fields": {"signatures": [text], "kind": text}}) for text in ("s", "t")),
        chunk({"content": "b"}),
        chunk({}, finish_reason="stop") | {"usage": USAGE},
    ],
    "citations-in-lists": [
        *(chunk({"content": text, "provider_specific_fields": {"citation": [{"cited_text": text}]}}) for text in "ab"),
        chunk({}, finish_reason="stop") | {"usage": USAGE},
    ],
    "several-choices": [
        chunk({"content": "a"}, 0),
        chunk({"content": "b"}, 1),
        chunk({}, 0, finish_reason="stop"),
        chunk({}, 1, finish_reason="length") | {"usage": USAGE},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def of_backend(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    peers.load("litellm").suppress_debug_info = True
    monkeypatch.setattr(deltafold.litellm, "ChatCompletionAccumulator", backend.ChatCompletionAccumulator)
    return backend


def objects(chunks: list[dict[str, Any]]) -> list[Any]:
    make = peers.load("litellm.types.utils").ModelResponseStream
    return [make(**copy.deepcopy(HEAD | value)) for value in chunks]


def told(response: Any) -> list[Any]:
    """What of a response is from the stream."""
    return [
        (response.id, response.object, response.created, response.model),
        [
            (
                choice.index,
                choice.finish_reason,
                choice.message.role,
                choice.message.content or None,
                getattr(choice.message, "reasoning_content", None),
                getattr(choice.message, "thinking_blocks", None),
                getattr(choice.message, "provider_specific_fields", None),
                [(c.id, c.type, c.function.name, c.function.arguments) for c in choice.message.tool_calls or []],
            )
            for choice in response.choices
        ],
        response.usage
        and (response.usage.prompt_tokens, response.usage.completion_tokens, response.usage.total_tokens),
    ]


@pytest.mark.parametrize("name", ALIKE)
def test_alike(name: str) -> None:
    litellm = peers.load("litellm")
    ours = stream_chunk_builder(objects(ALIKE[name]), MESSAGES)
    other = litellm.stream_chunk_builder(objects(ALIKE[name]), MESSAGES)
    assert type(ours) is type(other) is litellm.ModelResponse
    assert told(ours) == told(other)
    assert told(stream_chunk_builder([HEAD | value for value in ALIKE[name]], MESSAGES)) == told(other)


def test_nothing() -> None:
    assert stream_chunk_builder([]) is None
    assert stream_chunk_builder(iter(())) is None


def test_usage_is_not_made_up() -> None:
    litellm = peers.load("litellm")
    assert litellm.stream_chunk_builder(objects(TEXT[:3]), MESSAGES).usage.completion_tokens > 0
    assert stream_chunk_builder(objects(TEXT[:3]), MESSAGES).usage is None
    asked = stream_chunk_builder(objects(TEXT[:3]), MESSAGES, estimate=True, count_prompt_tokens=lambda: 11)
    assert asked.usage.prompt_tokens == 11
    assert asked.usage.completion_tokens == litellm.token_counter(model="m-1", text="Hello", count_response_tokens=True)
    assert asked.usage.total_tokens == asked.usage.prompt_tokens + asked.usage.completion_tokens
    counted = stream_chunk_builder(objects(TEXT[:3]), MESSAGES, estimate=True)
    assert counted.usage.prompt_tokens == litellm.token_counter(model="m-1", messages=MESSAGES)
    assert stream_chunk_builder(objects(TEXT), MESSAGES, estimate=True).usage.total_tokens == 7


def test_a_finish_reason_is_not_made_up() -> None:
    assert peers.load("litellm").stream_chunk_builder(objects(TEXT[:2])).choices[0].finish_reason == "stop"
    response = stream_chunk_builder(objects(TEXT[:2]))
    assert response.choices[0].finish_reason is None
    assert response.choices[0].message.content == "Hello"


def test_two_calls_of_one_index() -> None:
    """A server without indexes: litellm gives each the index 0."""
    chunks = [
        chunk({"tool_calls": [call(None, '{"q":1}', id="c0", name="f")]}),
        chunk({"tool_calls": [call(None, '{"q":2}', id="c1", name="g")]}),
        chunk({}, finish_reason="tool_calls") | {"usage": USAGE},
    ]
    assert len(peers.load("litellm").stream_chunk_builder(objects(chunks)).choices[0].message.tool_calls) == 1
    calls = stream_chunk_builder(objects(chunks)).choices[0].message.tool_calls
    assert [(c.id, c.function.name, c.function.arguments) for c in calls] == [
        ("c0", "f", '{"q":1}'),
        ("c1", "g", '{"q":2}'),
    ]


def test_thinking_without_a_signature_is_kept() -> None:
    chunks = [chunk({"thinking_blocks": [{"type": "thinking", "thinking": text}]}) for text in ("a", "a")]
    assert (
        getattr(peers.load("litellm").stream_chunk_builder(objects(chunks)).choices[0].message, "thinking_blocks", None)
        is None
    )
    message = stream_chunk_builder(objects(chunks)).choices[0].message
    assert [dict(block) for block in message.thinking_blocks] == [{"type": "thinking", "thinking": "aa"}]


def test_citations_spelled_out() -> None:
    """The same by hand, for the day when theirs changes."""
    message = stream_chunk_builder(objects(ALIKE["provider-specific-fields"])).choices[0].message
    assert message.provider_specific_fields == {
        "citations": [[{"cited_text": text, "type": "page"} for text in ("x", "y", "y")]],
        "signatures": ["t"],
        "kind": "t",
    }
    both = [
        chunk({"provider_specific_fields": {"citation": {"n": index}, "k": index}}, index, finish_reason="stop")
        for index in (0, 1)
    ]
    told = [choice.message.provider_specific_fields for choice in stream_chunk_builder(objects(both)).choices]
    assert told == [{"citations": [[{"n": index}]], "k": index} for index in (0, 1)]


def test_content_in_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    chunks = [
        chunk({"role": "assistant", "content": [thinking]}),
        chunk({"content": [{"type": "text", "text": "s"}]}),
        chunk({"content": "o"}),
        chunk({}, finish_reason="stop"),
    ]
    assert peers.load("litellm").stream_chunk_builder(objects(chunks)).choices[0].message.content == "o"
    for given in (objects(chunks), [HEAD | value for value in chunks]):
        message = stream_chunk_builder(given).choices[0].message
        assert (message.content, message.reasoning_content) == ("so", "hm")


def test_members_of_other_services() -> None:
    chunks = [chunk({"content": "a"}, native_finish_reason="completed", finish_reason="stop") | {"timings": {"ms": 1}}]
    told = stream_chunk_builder(objects(chunks)).model_dump()
    assert (told["timings"], told["choices"][0]["native_finish_reason"]) == ({"ms": 1}, "completed")
    assert "timings" not in peers.load("litellm").stream_chunk_builder(objects(chunks)).model_dump()


def test_content_that_never_came_is_none() -> None:
    chunks = [chunk({"role": "assistant", "content": None}), chunk({}, finish_reason="stop")]
    assert peers.load("litellm").stream_chunk_builder(objects(chunks)).choices[0].message.content == ""
    assert stream_chunk_builder(objects(chunks)).choices[0].message.content is None


def test_the_chunks_stay_as_they_were() -> None:
    chunks = [HEAD | value for value in ALIKE["thinking"] + ALIKE["provider-specific-fields"]]
    before = copy.deepcopy(chunks)
    stream_chunk_builder(chunks)
    assert chunks == before


def test_usage_that_litellm_put_aside_and_hidden_parameters() -> None:
    given = objects(TEXT[:3])
    given[0]._hidden_params = {"custom_llm_provider": "openai"}
    given[-1]._hidden_params = {"usage": peers.load("litellm").Usage(**USAGE)}
    response = stream_chunk_builder(given)
    assert response.usage.total_tokens == 7
    assert response._hidden_params["custom_llm_provider"] == "openai"


def test_text_completions_are_handed_over() -> None:
    litellm = peers.load("litellm")
    chunks = [
        {"id": "t", "object": "text_completion", "created": 1, "model": "m", "choices": [{"index": 0, "text": text}]}
        for text in "ab"
    ]
    response = stream_chunk_builder(copy.deepcopy(chunks))
    assert isinstance(response, litellm.TextCompletionResponse)
    assert response.choices[0].text == "ab"


def test_collected_chunks() -> None:
    """The recipe of docs/litellm.md, with the answer that litellm itself makes up for tests."""
    litellm = peers.load("litellm")
    recipe = next(code for code in recipes("litellm.md") if "stream_chunk_builder(" in code)
    names: dict[str, Any] = {"model": "gpt-4o-mini", "messages": MESSAGES}

    class Mocked:
        @staticmethod
        def completion(**options: Any) -> Any:
            return litellm.completion(**options, mock_response="A river runs.")

    exec(recipe, names | {"litellm": Mocked}, names)
    assert names["response"].choices[0].message.content == "A river runs."
    assert names["response"].choices[0].finish_reason == "stop"


def test_the_streaming_hook(of_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of docs/litellm.md, word for word."""
    monkeypatch.setattr(deltafold, "ChatCompletionAccumulator", of_backend.ChatCompletionAccumulator)
    recorded: list[Any] = []
    names: dict[str, Any] = {"record": lambda *told: recorded.append(told)}
    peers.load("litellm.integrations.custom_logger")
    exec(next(code for code in recipes("litellm.md") if "CustomLogger" in code), names)
    given = objects(TEXT)

    async def upstream() -> AsyncIterator[Any]:
        for value in given:
            yield value

    async def consumed(count: int) -> list[Any]:
        passed = []
        stream = names["Record"]().async_post_call_streaming_iterator_hook(None, upstream(), {"model": "m-1"})
        async for value in stream:
            passed.append(value)
            if len(passed) == count:
                break
        await stream.aclose()
        return passed

    assert asyncio.run(consumed(100)) == given
    request, usage, error, result = recorded.pop()
    assert (request, usage["total_tokens"], error) == ({"model": "m-1"}, 7, None)
    assert result["choices"][0]["message"]["content"] == "Hello"
    assert asyncio.run(consumed(2)) == given[:2]
    request, usage, error, result = recorded.pop()
    assert (usage, error.kind, result["choices"][0]["message"]["content"]) == (None, "truncated", "Hello")
