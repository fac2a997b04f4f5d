"""Chunks that come as objects give what their bytes would have given, on both implementations."""

from __future__ import annotations

import copy
import json
import math
import typing
import warnings
from typing import Any

import pytest

import deltafold._merge_chunks
import peers
from conftest import Backend
from deltafold import DeltafoldError, Seen, Truncated, merge_chunks
from streams import chunk, sse

HEAD = {
    "id": "chatcmpl-obj",
    "object": "chat.completion.chunk",
    "created": 1767225600,
    "model": "m-1",
    "service_tier": "default",
}


def call(index: int, arguments: str, **head: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": head.pop("name")} if "name" in head else {})
    return {"index": index, **head, "function": function}


TOKEN = {"token": "é", "logprob": -0.25, "bytes": [195, 169], "top_logprobs": []}
CHUNKS: list[dict[str, Any]] = [
    HEAD | chunk({"role": "assistant", "content": "", "refusal": None}, logprobs=None, finish_reason=None),
    HEAD | chunk({"content": "é", "reasoning_content": "why"}, logprobs={"content": [TOKEN], "refusal": None}),
    HEAD | chunk({"content": "é"}, finish_reason=None) | {"usage": None},
    HEAD | chunk({"tool_calls": [call(0, "", id="call_0", type="function", name="look_up")]}),
    HEAD | chunk({"tool_calls": [call(0, '{"q":"1"}')]}),
    HEAD | chunk({"content": "other", "vendor_member": {"a": [1, 2.5, True, None]}}, index=1),
    HEAD | chunk({}, index=1, finish_reason="stop"),
    HEAD | chunk({}, finish_reason="tool_calls") | {"obfuscation": "xxxx"},
    HEAD | {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "cost": 0.5}},
]
# By hand, from what the server would have sent without streaming.
RESULT = {
    "id": "chatcmpl-obj",
    "object": "chat.completion",
    "created": 1767225600,
    "model": "m-1",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "éé",
                "refusal": None,
                "reasoning_content": "why",
                "tool_calls": [
                    {"id": "call_0", "type": "function", "function": {"name": "look_up", "arguments": '{"q":"1"}'}}
                ],
            },
            "finish_reason": "tool_calls",
            "logprobs": {"content": [TOKEN], "refusal": None},
        },
        {
            "index": 1,
            "message": {"role": "assistant", "content": "other", "vendor_member": {"a": [1, 2.5, True, None]}},
            "finish_reason": "stop",
        },
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "cost": 0.5},
    "service_tier": "default",
}


class Dumped:
    """An object of some other library: it only has ``model_dump``."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    def model_dump(self, *, exclude_unset: bool = False) -> dict[str, Any]:
        assert exclude_unset, "members that the server did not send are not to be made up"
        return self.value


class ToDict:
    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    def to_dict(self) -> dict[str, Any]:
        return self.value


def nested(value: dict[str, Any]) -> dict[str, Any]:
    """A dict whose choices are objects."""
    return value | {"choices": [ToDict(entry) for entry in value["choices"]]}


def openai_chunk(value: dict[str, Any]) -> Any:
    """As openai's client makes one of the server's JSON: unknown values and members are let through."""
    return peers.load("openai.types.chat").ChatCompletionChunk.construct(**copy.deepcopy(value))


KINDS = [
    pytest.param(dict, id="dict"),
    pytest.param(Dumped, id="model_dump"),
    pytest.param(ToDict, id="to_dict"),
    pytest.param(nested, id="objects-in-a-dict"),
    pytest.param(openai_chunk, id="openai"),
]


@pytest.mark.parametrize("make", KINDS)
def test_objects_merge_as_their_bytes(backend: Backend, make: Any) -> None:
    of_objects, of_bytes = backend.ChatCompletionAccumulator(), backend.ChatCompletionAccumulator()
    for value in CHUNKS:
        assert of_objects.feed_chunk(make(value)) == of_bytes.feed(sse(value))
    assert of_objects.close() == of_bytes.close() == 0
    assert of_objects.result() == RESULT
    assert (
        of_objects.result_json() == of_bytes.result_json() or make is openai_chunk
    )  # that orders members by its fields
    assert json.loads(of_objects.result_json()) == RESULT
    assert of_objects.complete
    assert of_objects.error is None
    assert of_objects.counts == of_bytes.counts | {"bytes": 0, "events": 0}
    assert [d[:2] for d in of_objects.diagnostics] == [d[:2] for d in of_bytes.diagnostics]


@pytest.mark.parametrize("make", KINDS)
def test_chunks_that_repeat_but_for_their_text(backend: Backend, make: Any) -> None:
    """They take a shorter way, which nothing must show."""
    nulls = {"logprobs": None, "finish_reason": None}
    texts = ["a", "b", 'q"\\\n', "é🌊", "\x01", "", "c\ud83d", "\ude00d", "e", "f"]
    values = [HEAD | chunk({"role": "assistant", "content": ""}, **nulls)]
    values += [HEAD | chunk({"content": text}, **nulls) | {"obfuscation": "x" * at} for at, text in enumerate(texts)]
    values[-1] |= {"model": "m-2"}
    fast, slow = backend.ChatCompletionAccumulator(), backend.ChatCompletionAccumulator()
    slow._set_fast_path(False)
    flags = [fast.feed_chunk(make(value)) for value in values]
    assert flags == [slow.feed_chunk(make(value)) for value in values]
    assert flags == [0] + [Seen.CONTENT if text else 0 for text in texts]
    assert fast.text() == slow.text() == 'abq"\\\né🌊\x01c😀def'
    assert (fast.model, fast.counts["chunks"]) == ("m-2", len(values))
    assert (fast.counts, fast.retained_bytes) == (slow.counts, slow.retained_bytes)
    assert fast.diagnostics == slow.diagnostics == []
    limited = backend.ChatCompletionAccumulator(deltafold.Limits(max_retained_bytes=fast.retained_bytes - 1))
    for value in values:
        limited.feed_chunk(make(value))
    assert limited.error.kind == "limit-exceeded"
    assert len(limited.text()) < len(fast.text())


@pytest.mark.filterwarnings("ignore:.*ReadOnly:UserWarning")  # litellm's own, when its types are first used
def test_litellm_chunks(backend: Backend) -> None:
    types = peers.load("litellm.types.utils")
    accumulator = backend.ChatCompletionAccumulator()
    for value in CHUNKS:
        accumulator.feed_chunk(types.ModelResponseStream(**copy.deepcopy(value)))
    accumulator.close()
    result = accumulator.result()
    assert result["id"] == "chatcmpl-obj"
    assert accumulator.finish_reasons == {0: "tool_calls", 1: "stop"}
    assert accumulator.text() == "éé"
    assert accumulator.reasoning_text() == "why"
    assert [(c.id, c.name, c.arguments) for c in accumulator.tool_calls()] == [("call_0", "look_up", '{"q":"1"}')]
    assert accumulator.text(1) == "other"
    assert result["usage"]["total_tokens"] == 7


def test_models_that_write_themselves_in_their_own_way(backend: Backend) -> None:
    """Whatever a model's own rules are, what counts is its model_dump."""
    pydantic = peers.load("pydantic")

    class Base(pydantic.BaseModel):
        choices: list[dict[str, Any]] = pydantic.Field(default_factory=lambda: [chunk({"content": "a"})["choices"][0]])
        model: str = "default"
        secret: str = "s"

    class Serialized(Base):
        @pydantic.field_serializer("model")
        def shout(self, value: str) -> str:
            return value.upper()

    class Whole(Base):
        @pydantic.model_serializer
        def write(self) -> dict[str, Any]:
            return {"choices": self.choices, "model": "whole"}

    class Computed(Base):
        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def system_fingerprint(self) -> str:
            return "fp"

    class Excluded(Base):
        secret: str = pydantic.Field(default="s", exclude=True)

    class Aliased(Base):
        model_config = pydantic.ConfigDict(serialize_by_alias=True)
        secret: str = pydantic.Field(default="s", serialization_alias="told")

    class Annotated(Base):
        model: typing.Annotated[str, pydantic.PlainSerializer(lambda value: value[::-1])] = "default"

    class Replaced(Base):
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return {"choices": self.choices, "model": "replaced"}

    for kind in (Base, Serialized, Whole, Computed, Excluded, Aliased, Annotated, Replaced):
        for values in ({"model": "abc", "secret": "x"}, {"model": "abc"}):
            value = kind(choices=[chunk({"content": "a"})["choices"][0]], **values)
            of_object, of_dump = backend.ChatCompletionAccumulator(), backend.ChatCompletionAccumulator()
            of_object.feed_chunk(value)
            of_dump.feed_chunk(value.model_dump(exclude_unset=True))
            assert of_object.result_json() == of_dump.result_json(), kind


def test_a_model_that_is_only_a_root(backend: Backend) -> None:
    pydantic = peers.load("pydantic")

    class Root(pydantic.RootModel[dict[str, Any]]):
        pass

    class Chunk(pydantic.BaseModel):
        choices: list[Root]

    value = chunk({"content": "a"})
    for made in (Root(value), Chunk(choices=[Root(value["choices"][0])])):
        accumulator = backend.ChatCompletionAccumulator()
        accumulator.feed_chunk(made)
        assert accumulator.text() == "a"
        assert accumulator.diagnostics == []


@pytest.mark.filterwarnings("ignore:.*ReadOnly:UserWarning")
def test_litellm_choices_in_a_dict(backend: Backend) -> None:
    """Their members are partly fields and partly not; none may be made up or lost."""
    types = peers.load("litellm.types.utils")
    delta = types.Delta(content="é", reasoning_content="why", provider_specific_fields=None)
    choice = types.StreamingChoices(index=1, delta=delta)
    of_objects, of_dump = backend.ChatCompletionAccumulator(), backend.ChatCompletionAccumulator()
    of_objects.feed_chunk({"choices": [choice, types.StreamingChoices(index=0, delta=types.Delta(role="assistant"))]})
    of_dump.feed_chunk(
        {"choices": [choice.model_dump(exclude_unset=True), {"index": 0, "delta": {"role": "assistant"}}]}
    )
    assert of_objects.text(1) == "é"
    assert of_objects.reasoning_text(1) == "why"
    assert of_objects.result()["choices"][1] == of_dump.result()["choices"][1]


def test_a_surprising_value_warns_of_nothing(backend: Backend) -> None:
    value = HEAD | {"model": None} | chunk({"role": "narrator", "content": ["odd"]}, finish_reason="done_for_today")
    accumulator = backend.ChatCompletionAccumulator()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accumulator.feed_chunk(openai_chunk(value))
    assert accumulator.finish_reasons == {0: "done_for_today"}
    assert accumulator.text() == "odd"


def test_what_json_needs_help_with(backend: Backend) -> None:
    """Halves of a surrogate pair in two chunks, NaN, infinities, and integers beyond 64 bits."""
    values = [chunk({"content": "a\ud83d"}), chunk({"content": "\ude00"}, score=math.inf, many=10**40, none=math.nan)]
    for make in (dict, openai_chunk):
        accumulator = backend.ChatCompletionAccumulator()
        for value in values:
            accumulator.feed_chunk(make(value))
        choice = accumulator.result()["choices"][0]
        assert choice["message"]["content"] == "a😀"
        assert (choice["score"], choice["many"]) == (math.inf, 10**40)
        assert math.isnan(choice["none"])


def test_arguments_as_an_object_become_compact_text(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    function = {"name": "f", "arguments": {"city": "Zürich", "days": [1, 2]}}
    accumulator.feed_chunk(chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]}))
    assert accumulator.tool_calls()[0].arguments == '{"city":"Zürich","days":[1,2]}'


@pytest.mark.parametrize(
    "bad",
    [
        None,
        3,
        "data: {}",
        b"data: {}\n\n",
        [chunk({"content": "a"})],
        object(),
        Dumped,
        {"choices": object()},
        {"choices": {1, 2}},
        Dumped("text"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_chunk_is_a_type_error(backend: Backend, bad: Any) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    with pytest.raises(TypeError):
        accumulator.feed_chunk(bad)
    circle: dict[str, Any] = {}
    circle["choices"] = [circle]
    with pytest.raises(TypeError):
        accumulator.feed_chunk(circle)
    accumulator.feed_chunk(chunk({"content": "still fine"}))
    assert accumulator.text() == "still fine"


def test_an_error_chunk_and_a_closed_accumulator(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    assert accumulator.feed_chunk({"error": {"message": "overloaded", "code": 529}}) == Seen.ERROR
    assert (accumulator.error.kind, accumulator.error.code, accumulator.error.offset) == ("upstream-error", 529, None)
    accumulator.close()
    with pytest.raises(ValueError, match="closed"):
        accumulator.feed_chunk(CHUNKS[0])


# merge_chunks


@pytest.fixture
def of_backend(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    monkeypatch.setattr(deltafold._merge_chunks, "ChatCompletionAccumulator", backend.ChatCompletionAccumulator)
    return backend


@pytest.mark.parametrize("make", KINDS)
def test_merge_chunks(of_backend: Backend, make: Any) -> None:
    assert merge_chunks(make(value) for value in CHUNKS) == RESULT


def test_what_changes_around_the_choices_is_merged(of_backend: Backend) -> None:
    """Chunk objects that repeat their envelope are merged by their choices alone; any change must be seen."""
    changing = [
        HEAD | chunk({"content": "a"}),
        HEAD | chunk({"content": "a"}),
        HEAD | {"model": "m-2"} | chunk({"content": "b"}),
        HEAD | {"model": "m-2"} | chunk({"content": "b"}),
        HEAD | {"model": "m-2", "system_fingerprint": "fp"} | chunk({"content": "c"}),
        HEAD | {"model": "m-2", "system_fingerprint": "fp"} | chunk({"content": "c"}, finish_reason="stop"),
        HEAD | {"model": "m-2", "citations": ["x"]} | chunk({"content": "d"}),
        HEAD | {"model": "m-2", "citations": ["x", "y"]} | chunk({"content": "d"}),
        HEAD | {"model": "m-2"} | chunk({"content": "e"}) | {"usage": {"total_tokens": 1}},
        HEAD | {"model": "m-2"} | chunk({"content": "e"}) | {"usage": {"total_tokens": 2}},
    ]
    result = merge_chunks(map(openai_chunk, changing))
    assert result["choices"][0]["message"]["content"] == "aabbccddee"
    assert (result["model"], result["system_fingerprint"], result["citations"]) == ("m-2", "fp", ["x", "y"])
    assert result["usage"] == {"total_tokens": 2}


def test_what_changes_in_a_choice_is_merged(of_backend: Backend) -> None:
    nulls = {"finish_reason": None, "logprobs": None}
    changing = [
        HEAD | chunk({"content": "a"}, **nulls),
        HEAD | chunk({"content": "a"}, **nulls),
        HEAD | chunk({"content": "b"}, 1, **nulls),
        HEAD | chunk({"content": "b"}, 1, **nulls),
        HEAD | chunk({"content": "a"}, **nulls),
        HEAD | chunk({"content": "c"}, token_ids=[1], **nulls),
        HEAD | chunk({"content": "c"}, token_ids=[1], **nulls),
        HEAD | chunk({"content": "d"}, logprobs={"content": [TOKEN]}, finish_reason=None),
        HEAD | chunk({"content": "d"}, logprobs={"content": [TOKEN]}, finish_reason=None),
        HEAD | {"choices": [{"delta": {"content": "e"}}]},
        HEAD | {"choices": [{"delta": {"content": "e"}}]},
        HEAD | {"choices": [{"index": 1, "delta": None, "finish_reason": "stop"}]},
        HEAD
        | {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}, {"index": 2, "delta": {"content": "f"}}]},
        HEAD
        | {"choices": [{"index": 0, "delta": {}}, {"index": 2, "delta": {"content": "f"}, "finish_reason": "stop"}]},
    ]
    first, second, third = merge_chunks(map(openai_chunk, changing))["choices"]
    assert first["message"]["content"] == "aaaccddee"
    assert (first["token_ids"], first["logprobs"]) == ([1, 1], {"content": [TOKEN, TOKEN]})
    assert first["finish_reason"] == "length"
    assert second == {
        "index": 1,
        "message": {"role": "assistant", "content": "bb"},
        "finish_reason": "stop",
        "logprobs": None,
    }
    assert third["message"]["content"] == "ff"


def test_merge_chunks_raises_what_went_wrong(of_backend: Backend) -> None:
    with pytest.raises(Truncated) as caught:
        merge_chunks([chunk({"content": "cut"})])
    assert caught.value.partial["choices"][0]["message"]["content"] == "cut"
    with pytest.raises(DeltafoldError, match="overloaded"):
        merge_chunks([{"error": {"message": "overloaded"}}])
    with pytest.raises(Truncated):
        merge_chunks([])


def test_merge_chunks_takes_limits_and_n(of_backend: Backend) -> None:
    both = [chunk({"content": "a"}, finish_reason="stop"), chunk({"content": "b"}, index=1, finish_reason="stop")]
    assert merge_chunks(both, n=1)["choices"][0]["message"]["content"] == "ab"
    with pytest.raises(DeltafoldError, match="max_choices=1"):
        merge_chunks(both, limits=deltafold.Limits(max_choices=1))
