"""deltafold.openai beside the real openai-python: alike where that is right, and right where it is not."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import deltafold.openai
import peers
from conftest import Backend, recipes
from deltafold.openai import ChatCompletionStreamState, to_openai
from streams import chunk, sse

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*serialize.*:UserWarning"
)  # openai's, of values its types do not expect
HEAD = {
    "id": "chatcmpl-own",
    "object": "chat.completion.chunk",
    "created": 1767225600,
    "model": "m-1",
    "system_fingerprint": "fp",
    "service_tier": "default",
}
ATTRIBUTES = "delta snapshot parsed content refusal name index arguments arguments_delta parsed_arguments".split()
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
NULLS: dict[str, Any] = {"logprobs": None, "finish_reason": None}


def token(text: str) -> dict[str, Any]:
    return {"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []}


def fragment(index: int | None, arguments: str | None = None, **head: Any) -> dict[str, Any]:
    function = {"name": head.pop("name")} if "name" in head else {}
    if arguments is not None:
        function["arguments"] = arguments
    return {"index": index} | head | {"function": function}


def calls(*fragments: dict[str, Any], **members: Any) -> dict[str, Any]:
    return chunk({"tool_calls": list(fragments)}, **NULLS | members)


def usage(**counts: int) -> dict[str, Any]:
    return {"choices": [], "usage": USAGE | counts}


START = chunk({"role": "assistant", "content": "", "refusal": None}, **NULLS)
CALL = {"type": "function"}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "look_up", "strict": True, "parameters": {}}},
    {"type": "function", "function": {"name": "loose", "parameters": {}}},
]

# Streams that openai-python merges rightly.
ALIKE: dict[str, list[dict[str, Any]]] = {
    "text": [
        START,
        chunk({"content": "Hel"}, **NULLS),
        chunk({"content": "lo 🌊"}, **NULLS),
        chunk({}, logprobs=None, finish_reason="stop"),
        usage(),
    ],
    "no-usage": [START, chunk({"content": "x"}, **NULLS), chunk({}, finish_reason="length")],
    "nothing": [START, chunk({}, finish_reason="stop")],
    "refusal": [
        chunk({"role": "assistant", "content": None, "refusal": ""}, **NULLS),
        chunk({"refusal": "I'm "}, **NULLS),
        chunk({"refusal": "sorry"}, **NULLS),
        chunk({}, finish_reason="stop"),
        usage(),
    ],
    "logprobs": [
        chunk({"role": "assistant", "content": ""}, logprobs={"content": [], "refusal": None}, finish_reason=None),
        chunk({"content": "a"}, logprobs={"content": [token("a")], "refusal": None}, finish_reason=None),
        chunk({"content": "bc"}, logprobs={"content": [token("b"), token("c")], "refusal": None}, finish_reason=None),
        chunk({}, finish_reason="stop"),
    ],
    "logprobs-of-a-refusal": [
        chunk({"role": "assistant", "refusal": ""}, **NULLS),
        chunk({"refusal": "no"}, logprobs={"content": None, "refusal": [token("no")]}, finish_reason=None),
        chunk({"refusal": "!"}, logprobs={"content": None, "refusal": [token("!")]}, finish_reason=None),
        chunk({}, finish_reason="stop"),
    ],
    "a-call": [
        chunk({"role": "assistant", "content": None}, **NULLS),
        calls(fragment(0, "", id="c0", name="look_up", **CALL)),
        calls(fragment(0, '{"q":')),
        calls(fragment(0, '"x"}')),
        chunk({}, finish_reason="tool_calls"),
        usage(),
    ],
    "calls-one-after-the-other": [
        chunk({"role": "assistant", "content": "Let me see."}, **NULLS),
        calls(fragment(0, "", id="c0", name="look_up", **CALL)),
        calls(fragment(0, '{"q":1}')),
        calls(fragment(1, "", id="c1", name="loose", **CALL)),
        calls(fragment(1, "{}")),
        calls(fragment(2, '{"q":', id="c2", name="look_up", **CALL)),
        calls(fragment(2, "2}")),
        chunk({}, finish_reason="tool_calls"),
    ],
    "a-call-from-the-first-chunk": [
        chunk({"role": "assistant", "content": None, "tool_calls": [fragment(0, "", id="c0", name="loose", **CALL)]}, **NULLS),
        calls(fragment(0, "{}")),
        chunk({}, finish_reason="tool_calls"),
    ],
    "several-choices-in-order": [
        chunk({"role": "assistant", "content": ""}, 0, **NULLS),
        chunk({"role": "assistant", "content": ""}, 1, **NULLS),
        chunk({"content": "a"}, 0, **NULLS),
        chunk({"content": "b"}, 1, **NULLS),
        chunk({}, 0, finish_reason="stop"),
        chunk({}, 1, finish_reason="stop"),
        usage(),
    ],
    "padding": [
        START | {"obfuscation": "abc"},
        chunk({"content": "x"}, **NULLS) | {"obfuscation": "d"},
        chunk({}, finish_reason="stop") | {"obfuscation": "efgh"},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def of_backend(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    peers.load("openai")
    monkeypatch.setattr(deltafold.openai, "ChatCompletionAccumulator", backend.ChatCompletionAccumulator)
    return backend


def theirs(**options: Any) -> Any:
    return peers.load("openai.lib.streaming.chat").ChatCompletionStreamState(**options)


def objects(chunks: list[dict[str, Any]]) -> Iterator[Any]:
    make = peers.load("openai.types.chat").ChatCompletionChunk.construct
    for value in chunks:
        yield make(**copy.deepcopy(HEAD | value))


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(member) for member in value]
    return value.model_dump() if hasattr(value, "model_dump") else value


def shown(event: Any) -> dict[str, Any]:
    """The type of an event and every attribute that it has, a snapshot of strings and lists at this moment."""
    attributes = {name: plain(getattr(event, name)) for name in ATTRIBUTES if hasattr(event, name)}
    return {"type": event.type} | (attributes if event.type != "chunk" else {"chunk": event.chunk.id})


def events_of(state: Any, chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [shown(event) for value in objects(chunks) for event in state.handle_chunk(value)]


def dumped(completion: Any) -> dict[str, Any]:
    """All members; without what only the stream's delta had, the ``index`` of a tool call, which openai-python leaves in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told: dict[str, Any] = completion.model_dump()
    for choice in told["choices"]:
        for call in choice["message"]["tool_calls"] or ():
            call.pop("index", None)
    return told


@pytest.mark.parametrize("options", [{}, {"input_tools": TOOLS}], ids=["plain", "tools"])
@pytest.mark.parametrize("name", ALIKE)
def test_alike(name: str, options: dict[str, Any]) -> None:
    if options and name == "no-usage":
        pytest.skip("with strict tools a finish reason of length is an exception, see below")
    ours, other = ChatCompletionStreamState(**options), theirs(**options)
    for value in objects(ALIKE[name]):
        expected = [shown(event) for event in other.handle_chunk(value)]
        assert [shown(event) for event in ours.handle_chunk(value)] == expected
        assert dumped(ours.current_completion_snapshot) == dumped(other.current_completion_snapshot) or name == "text"
    if name != "no-usage":  # see test_length_without_anything_to_parse
        assert dumped(ours.get_final_completion()) == dumped(other.get_final_completion())
        assert isinstance(ours.get_final_completion(), peers.load("openai.types.chat").ParsedChatCompletion)


def test_events_spelled_out() -> None:
    """The same by hand, for the day when theirs changes."""
    state = ChatCompletionStreamState(input_tools=TOOLS)
    told = events_of(state, ALIKE["calls-one-after-the-other"])
    kinds = [event["type"].removeprefix("tool_calls.function.") for event in told if event["type"] != "chunk"]
    delta, done = "arguments.delta", "arguments.done"
    assert kinds == [
        "content.delta", delta, "content.done", delta, delta, done, delta, delta, done, delta, done,
    ]  # fmt: skip
    arguments = [e for e in told if e["type"].endswith(delta)]
    assert [
        (e["index"], e["name"], e["arguments_delta"], e["arguments"], e["parsed_arguments"]) for e in arguments
    ] == [
        (0, "look_up", "", "", None),
        (0, "look_up", '{"q":1}', '{"q":1}', {"q": 1}),
        (1, "loose", "", "", None),
        (1, "loose", "{}", "{}", None),
        (2, "look_up", '{"q":', '{"q":', {}),
        (2, "look_up", "2}", '{"q":2}', {"q": 2}),
    ]
    ended = [(e["index"], e["arguments"], e["parsed_arguments"]) for e in told if e["type"].endswith(done)]
    assert ended == [(0, '{"q":1}', {"q": 1}), (1, "{}", None), (2, '{"q":2}', {"q": 2})]


def test_a_snapshot_stays_what_it_was() -> None:
    state = ChatCompletionStreamState()
    events = [event for value in objects(ALIKE["text"]) for event in state.handle_chunk(value)]
    assert [e.snapshot for e in events if e.type == "content.delta"] == ["", "Hel", "Hello 🌊"]


def test_content_into_a_model() -> None:
    pydantic = peers.load("pydantic")

    class Place(pydantic.BaseModel):
        city: str
        days: int

    chunks = [
        START,
        *(chunk({"content": part}, **NULLS) for part in ('{"city":"Ul', 'm","days"', ":3}")),
        chunk({}, finish_reason="stop"),
    ]
    ours, other = (make(response_format=Place) for make in (ChatCompletionStreamState, theirs))
    assert events_of(ours, chunks) == events_of(other, chunks)
    assert ours.get_final_completion().choices[0].message.parsed == Place(city="Ulm", days=3)
    assert dumped(ours.get_final_completion()) == dumped(other.get_final_completion())


def visit() -> tuple[Any, dict[str, Any]]:
    """A model, and options that ask for it as content and as arguments."""
    pydantic, openai = peers.load("pydantic"), peers.load("openai")

    class Place(pydantic.BaseModel):
        city: str
        days: int = 3

    return Place, {"response_format": Place, "input_tools": [openai.pydantic_function_tool(Place, name="visit")]}


def test_a_snapshot_has_the_model_from_the_done_event_on() -> None:
    model, options = visit()
    ours, other = (make(**options) for make in (ChatCompletionStreamState, theirs))
    parts = [chunk({"content": part}, **NULLS) for part in ('{"city":', '"Ulm"}')]
    for value in objects([START, *parts, chunk({}, finish_reason="stop"), usage()]):
        for state in (ours, other):
            state.handle_chunk(value)
        assert dumped(ours.current_completion_snapshot) == dumped(other.current_completion_snapshot)
    for state in (ours, other):
        assert state.current_completion_snapshot.choices[0].message.parsed == model(city="Ulm")


def test_a_snapshot_keeps_the_model_when_the_choice_goes_on() -> None:
    model, options = visit()
    chunks = [
        chunk({"role": "assistant", "content": '{"city":"Ulm"}'}, **NULLS),
        calls(fragment(0, '{"city":"Ulm"}', id="c0", name="visit", **CALL)),
        calls(fragment(1, '{"city":"Ulm"', id="c1", name="visit", **CALL)),
        calls(fragment(1, "}")),
    ]
    ours, other = (make(**options) for make in (ChatCompletionStreamState, theirs))
    for value in objects(chunks):
        for state in (ours, other):
            state.handle_chunk(value)
    assert other.current_completion_snapshot.choices[0].message.parsed == {"city": "Ulm"}
    message = ours.current_completion_snapshot.choices[0].message
    assert message.parsed == message.tool_calls[0].function.parsed_arguments == model(city="Ulm")
    ours.handle_chunk(next(objects([chunk({}, finish_reason="tool_calls")])))
    message = ours.current_completion_snapshot.choices[0].message
    assert [call.function.parsed_arguments for call in message.tool_calls] == [model(city="Ulm")] * 2


def test_several_choices_into_a_model() -> None:
    pydantic = peers.load("pydantic")

    class Place(pydantic.BaseModel):
        city: str

    cities = ["Ulm", "Bonn", "Köln"]
    chunks = [chunk({"role": "assistant", "content": "", "refusal": None}, index, **NULLS) for index in range(3)]
    chunks += [chunk({"content": '{"city":"'}, index, **NULLS) for index in range(3)]
    chunks += [chunk({"content": f'{city}"}}'}, index, **NULLS) for index, city in enumerate(cities)]
    chunks += [chunk({}, index, finish_reason="stop") for index in range(3)]
    ours, other = (make(response_format=Place) for make in (ChatCompletionStreamState, theirs))
    assert events_of(ours, chunks) == events_of(other, chunks)
    assert [choice.message.parsed.city for choice in ours.get_final_completion().choices] == cities
    assert dumped(ours.get_final_completion()) == dumped(other.get_final_completion())


def test_a_response_format_as_the_api_takes_it_parses_nothing() -> None:
    chunks = [START, chunk({"content": '{"a":1}'}, **NULLS), chunk({}, finish_reason="stop")]
    ours, other = (make(response_format={"type": "json_object"}) for make in (ChatCompletionStreamState, theirs))
    assert events_of(ours, chunks) == events_of(other, chunks)
    assert ours.get_final_completion().choices[0].message.parsed is None
    assert dumped(ours.get_final_completion()) == dumped(other.get_final_completion())


def test_a_refusal_where_a_model_was_asked_for() -> None:
    pydantic = peers.load("pydantic")

    class Place(pydantic.BaseModel):
        city: str

    chunks = [START, *(chunk({"refusal": text}, **NULLS) for text in ("I ", "won't")), chunk({}, finish_reason="stop")]
    ours, other = (make(response_format=Place) for make in (ChatCompletionStreamState, theirs))
    assert events_of(ours, chunks) == events_of(other, chunks)
    assert dumped(ours.get_final_completion()) == dumped(other.get_final_completion())


def test_what_does_not_parse_raises_as_theirs() -> None:
    pydantic = peers.load("pydantic")

    class Place(pydantic.BaseModel):
        city: str

    chunks = [START, chunk({"content": '{"town":1}'}, **NULLS), chunk({}, finish_reason="stop")]
    for make in (ChatCompletionStreamState, theirs):
        with pytest.raises(pydantic.ValidationError):
            events_of(make(response_format=Place), chunks)
    cut = [START, calls(fragment(0, '{"q":', id="c", name="look_up", **CALL)), chunk({}, finish_reason="tool_calls")]
    for make in (ChatCompletionStreamState, theirs):
        with pytest.raises(ValueError, match="Expecting value"):
            events_of(make(input_tools=TOOLS), cut)


def test_tools_of_several_models() -> None:
    pydantic, openai = peers.load("pydantic"), peers.load("openai")

    class Query(pydantic.BaseModel):
        q: int

    class Price(pydantic.BaseModel):
        ticker: str

    tools = [openai.pydantic_function_tool(Query, name="look_up"), openai.pydantic_function_tool(Price, name="price")]
    chunks = [
        START,
        calls(fragment(0, "", id="c0", name="look_up", **CALL)),
        *(calls(fragment(0, text)) for text in ('{"q"', ":1}")),
        calls(fragment(1, "", id="c1", name="price", **CALL)),
        *(calls(fragment(1, text)) for text in ('{"ticker":', '"AA', 'PL"}')),
        chunk({}, finish_reason="tool_calls"),
        usage(),
    ]
    ours, other = (make(input_tools=tools) for make in (ChatCompletionStreamState, theirs))
    assert events_of(ours, chunks) == events_of(other, chunks)
    parsed = [call.function.parsed_arguments for call in ours.get_final_completion().choices[0].message.tool_calls]
    assert parsed == [Query(q=1), Price(ticker="AAPL")]
    assert dumped(ours.get_final_completion()) == dumped(other.get_final_completion())


def test_arguments_into_a_model() -> None:
    pydantic, openai = peers.load("pydantic"), peers.load("openai")

    class Query(pydantic.BaseModel):
        q: int

    tools = [openai.pydantic_function_tool(Query, name="look_up")]
    chunks = [
        START,
        calls(fragment(0, '{"q":', id="c", name="look_up", **CALL)),
        calls(fragment(0, "1}")),
        chunk({}, finish_reason="stop"),
    ]
    ours, other = (make(input_tools=tools) for make in (ChatCompletionStreamState, theirs))
    assert events_of(ours, chunks) == events_of(other, chunks)
    call = ours.get_final_completion().choices[0].message.tool_calls[0]
    assert call.function.parsed_arguments == Query(q=1)
    assert dumped(ours.get_final_completion()) == dumped(other.get_final_completion())


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_nothing_whole_to_parse(reason: str) -> None:
    openai = peers.load("openai")
    error = {"length": openai.LengthFinishReasonError, "content_filter": openai.ContentFilterFinishReasonError}[reason]
    for make in (ChatCompletionStreamState, theirs):
        state = make(input_tools=TOOLS)
        with pytest.raises(error):
            events_of(state, [START, chunk({"content": "cut"}, **NULLS), chunk({}, finish_reason=reason)])
        with pytest.raises(error):
            state.get_final_completion()


# Where openai-python is wrong or raises. What is right is by hand.


def final(chunks: list[dict[str, Any]], **options: Any) -> Any:
    state = ChatCompletionStreamState(**options)
    for value in objects(chunks):
        state.handle_chunk(value)
    return state.get_final_completion()


def raises(chunks: list[dict[str, Any]], **options: Any) -> bool:
    """openai-python does: when it no longer does, the table in docs/openai.md wants a line less."""
    state = theirs(**options)
    try:
        for value in objects(chunks):
            state.handle_chunk(value)
        state.get_final_completion()
    except Exception:
        return True
    return False


def test_length_without_anything_to_parse() -> None:
    assert raises(ALIKE["no-usage"])
    completion = final(ALIKE["no-usage"])
    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.content == "x"


def test_choices_in_any_order() -> None:
    chunks = [
        chunk({"role": "assistant", "content": "b"}, 1, logprobs={"content": [token("b")], "refusal": None}),
        chunk({"role": "assistant", "content": "a"}, 0, logprobs={"content": [token("a")], "refusal": None}),
        chunk({"content": "B"}, 1),
        chunk({}, 1, finish_reason="stop"),
        chunk({"content": "A"}, 0),
        chunk({}, 0, finish_reason="stop"),
    ]
    assert raises(chunks)
    assert [(c.index, c.message.content, len(c.logprobs.content)) for c in final(chunks).choices] == [
        (0, "aA", 1),
        (1, "bB", 1),
    ]
    told = events_of(ChatCompletionStreamState(), chunks)
    assert [e["snapshot"] for e in told if e["type"] == "content.delta"] == ["b", "a", "bB", "aA"]
    assert [e["content"] for e in told if e["type"] == "content.done"] == ["bB", "aA"]
    assert [[t["token"] for t in e["content"]] for e in told if e["type"] == "logprobs.content.done"] == [["b"], ["a"]]


def test_calls_with_gaps_in_their_indexes() -> None:
    chunks = [
        calls(fragment(1, "[1]", id="c1", name="loose", **CALL)),
        calls(fragment(3, "[3]", id="c3", name="loose", **CALL)),
        chunk({}, finish_reason="tool_calls"),
    ]
    assert raises(chunks)
    assert [(c.id, c.function.arguments) for c in final(chunks).choices[0].message.tool_calls] == [
        ("c1", "[1]"),
        ("c3", "[3]"),
    ]
    told = events_of(ChatCompletionStreamState(), chunks)
    assert [(e["index"], e["arguments"]) for e in told if e["type"].endswith("arguments.done")] == [
        (0, "[1]"),
        (1, "[3]"),
    ]


def test_a_call_whose_index_is_negative() -> None:
    chunks = [calls(fragment(-1, "[1]", id="c0", name="loose", **CALL)), chunk({}, finish_reason="tool_calls")]
    places = [
        [e["index"] for e in events_of(state, chunks) if e["type"].startswith("tool_calls")]
        for state in (theirs(), ChatCompletionStreamState())
    ]
    assert places == [[-1, -1], [0, 0]]


def test_two_calls_of_one_index() -> None:
    chunks = [calls(fragment(0, "{}", id=id, name="loose", **CALL)) for id in ("c0", "c1")]
    chunks.append(chunk({}, finish_reason="tool_calls"))
    wrong = theirs()
    events_of(wrong, chunks)
    assert [c.id for c in wrong.get_final_completion().choices[0].message.tool_calls] == ["c0c1"]
    told = events_of(ChatCompletionStreamState(), chunks)
    assert [(e["index"], e["arguments"]) for e in told if e["type"].endswith("arguments.done")] == [
        (0, "{}"),
        (1, "{}"),
    ]
    assert [(c.id, c.function.arguments) for c in final(chunks).choices[0].message.tool_calls] == [
        ("c0", "{}"),
        ("c1", "{}"),
    ]


def test_a_call_without_a_type() -> None:
    chunks = [START, calls(fragment(0, "[]", id="c0", name="loose")), chunk({}, finish_reason="tool_calls")]
    assert not [e for e in events_of(theirs(), chunks) if e["type"].startswith("tool_calls")]
    told = events_of(ChatCompletionStreamState(), chunks)
    assert [e["arguments"] for e in told if e["type"].endswith("arguments.done")] == ["[]"]
    assert final(chunks).choices[0].message.tool_calls[0].type == "function"


def test_calls_without_an_index() -> None:
    chunks = [
        calls(fragment(None, '{"q":', id="c0", name="loose", **CALL)),
        calls(fragment(None, "1}")),
        calls(fragment(None, '{"q":2}', id="c1", name="loose", **CALL)),
        chunk({}, finish_reason="tool_calls"),
    ]
    assert raises(chunks)
    told = events_of(ChatCompletionStreamState(), chunks)
    deltas = [(e["index"], e["arguments_delta"], e["arguments"]) for e in told if e["type"].endswith("arguments.delta")]
    assert deltas == [(0, '{"q":', '{"q":'), (0, "1}", '{"q":1}'), (1, '{"q":2}', '{"q":2}')]
    assert [e["arguments"] for e in told if e["type"].endswith("arguments.done")] == ['{"q":1}', '{"q":2}']


def test_the_text_null_is_no_finish_reason() -> None:
    chunks = [chunk({"content": text}, logprobs=None, finish_reason="null") for text in "ab"]
    chunks.append(chunk({}, finish_reason="stop"))
    told = [event["type"] for event in events_of(ChatCompletionStreamState(), chunks) if event["type"] != "chunk"]
    assert told == ["content.delta", "content.delta", "content.done"]
    assert final(chunks).choices[0].finish_reason == "stop"


def test_a_call_that_is_not_in_a_list() -> None:
    chunks = [
        chunk({"tool_calls": fragment(0, '{"q":', id="", name="loose", **CALL)}, **NULLS),
        chunk({"tool_calls": fragment(0, "1}", id="", name=None, **CALL)}, **NULLS),
        chunk({}, finish_reason="tool_calls"),
    ]
    assert raises(chunks)
    [held] = final(chunks).choices[0].message.tool_calls
    assert (held.function.name, held.function.arguments) == ("loose", '{"q":1}')
    told = events_of(ChatCompletionStreamState(), chunks)
    deltas = [(e["index"], e["arguments_delta"], e["arguments"]) for e in told if e["type"].endswith("arguments.delta")]
    assert deltas == [(0, '{"q":', '{"q":'), (0, "1}", '{"q":1}')]
    assert [e["arguments"] for e in told if e["type"].endswith("arguments.done")] == ['{"q":1}']


def test_interleaved_calls_are_done_when_they_are_whole() -> None:
    chunks = [
        calls(fragment(0, "", id="c0", name="look_up", **CALL), fragment(1, "", id="c1", name="look_up", **CALL)),
        calls(fragment(0, '{"q":')),
        calls(fragment(1, '{"q":')),
        calls(fragment(0, "1}")),
        calls(fragment(1, "2}")),
        chunk({}, finish_reason="tool_calls"),
    ]
    assert raises(chunks, input_tools=TOOLS)
    told = events_of(ChatCompletionStreamState(input_tools=TOOLS), chunks)
    done = [(e["index"], e["parsed_arguments"]) for e in told if e["type"].endswith("arguments.done")]
    assert done == [(0, {"q": 1}), (1, {"q": 2})]


def test_a_call_and_its_end_in_one_chunk() -> None:
    chunks = [calls(fragment(0, "[]", id="c0", name="loose", **CALL), finish_reason="tool_calls")]
    assert not [e for e in events_of(theirs(), chunks) if e["type"].endswith("arguments.done")]
    told = events_of(ChatCompletionStreamState(), chunks)
    assert [e["arguments"] for e in told if e["type"].endswith("arguments.done")] == ["[]"]


def test_what_is_repeated_is_not_joined() -> None:
    again = {"role": "assistant", "channel": "final"}
    chunks = [
        chunk(again | {"content": "a"}),
        chunk(again | {"tool_calls": [fragment(0, "[", id="c0", name="loose", **CALL)]}),
        chunk(again | {"tool_calls": [fragment(0, "]", id="c0", name="loose", **CALL)]}),
        chunk(again, finish_reason="tool_calls"),
        {"choices": [], "usage": USAGE, "system_fingerprint": "fp"},
        {"choices": [], "system_fingerprint": None},
    ]
    wrong = theirs()
    events_of(wrong, chunks)
    assert wrong.get_final_completion().choices[0].message.role != "assistant"
    assert wrong.get_final_completion().choices[0].message.channel != "final"
    completion = final(chunks)
    message = completion.choices[0].message
    assert (message.role, message.channel) == ("assistant", "final")
    assert [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls] == [("c0", "loose", "[]")]
    assert (wrong.get_final_completion().usage, wrong.get_final_completion().system_fingerprint) == (None, None)
    assert (completion.usage.total_tokens, completion.system_fingerprint) == (7, "fp")


def test_members_that_come_late() -> None:
    empty = {"id": "", "created": 0, "model": "", "service_tier": None}
    chunks = [
        empty | {"choices": [], "prompt_filter_results": []},
        START,
        chunk({"content": "a"}, **NULLS),
        chunk({}, finish_reason="stop", native_finish_reason="completed") | {"timings": {"ms": 1}},
    ]
    names = ("id", "created", "model", "service_tier")
    wrong = theirs()
    events_of(wrong, chunks)
    assert wrong.get_final_completion().to_dict().items() >= empty.items()
    told = final(chunks).to_dict()
    assert {name: told[name] for name in names} == {name: HEAD[name] for name in names}
    assert (told["timings"], told["choices"][0]["native_finish_reason"]) == ({"ms": 1}, "completed")
    assert "timings" not in wrong.get_final_completion().to_dict()


def test_lists_without_an_index() -> None:
    citation = {
        "type": "url_citation",
        "url_citation": {"url": "https://example.org", "title": "t", "start_index": 0, "end_index": 1},
    }
    chunks = [
        START,
        chunk({"annotations": [citation]}),
        chunk({"annotations": [citation | {"n": 2}]}),
        chunk({}, finish_reason="stop"),
    ]
    assert raises(chunks)
    assert [a.to_dict() for a in final(chunks).choices[0].message.annotations] == [citation, citation | {"n": 2}]


def test_content_in_parts_and_null_arguments() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    chunks = [
        chunk({"role": "assistant", "content": [thinking]}),
        chunk({"content": [{"type": "text", "text": "a"}]}),
        chunk({"content": [{"type": "text", "text": "b"}]}),
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "c", "type": "function", "function": {"name": "loose", "arguments": None}}
                ]
            }
        ),
        calls(fragment(0, "[]")),
        chunk({}, finish_reason="tool_calls"),
    ]
    told = [event for event in events_of(ChatCompletionStreamState(), chunks) if event["type"] != "chunk"]
    assert [(e["type"], e["delta"], e["snapshot"]) for e in told[:2]] == [
        ("content.delta", "a", "a"),
        ("content.delta", "b", "ab"),
    ]
    assert [e["arguments"] for e in told if e["type"].endswith("arguments.delta")] == ["", "[]"]
    assert [e["content"] for e in told if e["type"] == "content.done"] == ["ab"]


def test_a_choice_without_a_delta_and_a_first_chunk_without_a_choice() -> None:
    chunks = [
        {"choices": [], "prompt_filter_results": []},
        START,
        chunk({"content": "a"}),
        {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]},
    ]
    assert raises(chunks)
    assert raises([START, chunk("text")])  # other wrong types: see below
    assert raises([START, calls(fragment(0, "", id="c", name="f", **CALL)), calls({"index": 0, "function": None})])
    assert final(chunks).choices[0].message.content == "a"


MISTYPED: list[dict[str, Any]] = [
    *({"choices": choices} for choices in (None, 1, "text", {}, [None, "text", 1, [START]])),
    *(chunk(delta) for delta in ("text", 1, [], False)),
    *(chunk({"refusal": refusal}) for refusal in (1, ["no"], {"no": 1})),
    *(chunk({"tool_calls": fragments}) for fragments in (1, "text", [None, "text", 1, []])),
    chunk({"tool_calls": [None, {"index": None}, 0]}),
    *(chunk({}, logprobs=logprobs) for logprobs in (1, "text", {"content": 1}, {"refusal": {}})),
    chunk({}, finish_reason=1),
    chunk({}, finish_reason=["stop"]),
]


@pytest.mark.parametrize("mistyped", MISTYPED, ids=str)
def test_members_of_a_wrong_type_bring_nothing(mistyped: dict[str, Any]) -> None:
    chunks = [
        START,
        chunk({"content": "a"}, **NULLS),
        mistyped,
        calls(fragment(0, "[]", id="c", name="loose", **CALL)),
        chunk({}, finish_reason="tool_calls"),
    ]
    told = events_of(ChatCompletionStreamState(), chunks)
    assert [event for event in told if event["type"] != "chunk"] == [
        event for event in events_of(ChatCompletionStreamState(), chunks[:2] + chunks[3:]) if event["type"] != "chunk"
    ]
    choice = final(chunks).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "a")
    assert [call.function.arguments for call in choice.message.tool_calls] == ["[]"]


class Foreign:
    """An object of another library; members that are None it does not have, as litellm's."""

    def __init__(self, **members: Any) -> None:
        vars(self).update(members)

    def to_dict(self) -> dict[str, Any]:
        return vars(self)


def test_dicts_and_other_objects() -> None:
    state = ChatCompletionStreamState()
    events = [event for value in ALIKE["text"] for event in state.handle_chunk(HEAD | value)]  # type: ignore[arg-type]
    assert [e.delta for e in events if e.type == "content.delta"] == ["", "Hel", "lo 🌊"]
    state = ChatCompletionStreamState()
    told = state.handle_chunk({"choices": [Foreign(index=0, delta={"content": "hi"})]})  # type: ignore[arg-type]
    told += state.handle_chunk(Foreign(choices=[Foreign(index=0, delta=Foreign(content="ho"))]))  # type: ignore[arg-type]
    assert [e.delta for e in told if e.type == "content.delta"] == ["hi", "ho"]
    assert told[0].chunk.choices[0].delta.content == "hi"
    assert state.current_completion_snapshot.choices[0].message.content == "hiho"
    with pytest.raises(TypeError):
        state.handle_chunk(3)  # type: ignore[arg-type]


def test_before_the_first_chunk() -> None:
    assert ChatCompletionStreamState().current_completion_snapshot.choices == []


def test_to_openai(of_backend: Backend) -> None:
    """What the client itself makes of the body that the server would have sent."""
    types = peers.load("openai.types.chat")
    accumulator = of_backend.ChatCompletionAccumulator()
    accumulator.feed(sse(*(HEAD | value for value in ALIKE["calls-one-after-the-other"] + [usage()])))
    accumulator.close()
    completion = to_openai(accumulator.result())
    assert type(completion) is types.ChatCompletion
    assert (completion.id, completion.object, completion.usage.total_tokens) == ("chatcmpl-own", "chat.completion", 7)
    call = completion.choices[0].message.tool_calls[0]
    assert (call.id, call.type, call.function.name, call.function.arguments) == ("c0", "function", "look_up", '{"q":1}')
    assert completion.to_dict() == accumulator.result()
    assert types.ChatCompletion.model_validate_json(accumulator.result_json()) == completion


# Recipe: raw bytes from the real client, without one of its chunk objects


def server(body: bytes, pieces: int = 7) -> Any:
    """An openai client whose server answers every request with this stream, in small pieces."""
    openai = peers.load("openai")
    modules = [base.__module__.split(".")[0] for base in type(openai.OpenAI(api_key="none")._client).__mro__]
    httpx = peers.load(next(name for name in modules if name.startswith("httpx")))
    cut = [body[at : at + pieces] for at in range(0, len(body), pieces)]

    def answer(request: Any) -> Any:
        assert json.loads(request.content)["stream"] is True
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=iter(cut))

    http_client = httpx.Client(transport=httpx.MockTransport(answer))
    return openai.OpenAI(api_key="none", base_url="http://localhost/v1", http_client=http_client)


def test_raw_bytes_from_the_client(of_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of docs/openai.md, word for word."""
    client = server(sse(*(HEAD | value for value in ALIKE["text"])) + b"data: [DONE]\n\n")

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a chunk object was built")

    monkeypatch.setattr(peers.load("openai.types.chat").ChatCompletionChunk, "construct", never)
    monkeypatch.setattr(peers.load("openai._streaming").Stream, "__stream__", never)
    monkeypatch.setattr(deltafold, "ChatCompletionAccumulator", of_backend.ChatCompletionAccumulator)
    recipe = next(code for code in recipes("openai.md") if "with_streaming_response" in code)
    names: dict[str, Any] = {"client": client, "messages": [{"role": "user", "content": "hi"}]}
    exec(recipe, names)
    completion = names["completion"]
    assert completion.choices[0].message.content == "Hello 🌊"
    assert completion.usage.total_tokens == 7
    assert names["accumulator"].counts["chunks"] == 5


def test_chunk_objects_from_the_client() -> None:
    client = server(sse(*(HEAD | value for value in ALIKE["text"])) + b"data: [DONE]\n\n")
    recipe = next(code for code in recipes("openai.md") if "handle_chunk" in code)
    names: dict[str, Any] = {
        "client": client,
        "messages": [{"role": "user", "content": "hi"}],
        "print": lambda *_, **__: None,
    }
    exec(recipe, names)
    assert names["completion"].choices[0].message.content == "Hello 🌊"
