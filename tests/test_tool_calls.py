"""Tool calls: which call a fragment belongs to, names, arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conftest import Backend
from deltafold import Limits, Seen
from streams import END, Outcome, chunk, merged, offset_of, same, sse

GONE: Any = object()


def call(index: Any = GONE, id: Any = GONE, name: Any = GONE, arguments: Any = GONE, **members: Any) -> dict[str, Any]:
    """One fragment, with what is given."""
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not GONE}
    fragment = {k: v for k, v in (("index", index), ("id", id)) if v is not GONE}
    return fragment | ({"function": function} if function else {}) | members


def calls_of(backend: Backend, *fragments: Any, **options: Any) -> Outcome:
    """One fragment in each chunk; a list of them in one."""
    lists = [f if isinstance(f, list) else [f] for f in fragments]
    return merged(backend, *(chunk({"tool_calls": fragment}) for fragment in lists), *END, **options)


def short(outcome: Outcome) -> list[tuple[Any, ...]]:
    """(id, name, arguments) of each call in the result."""
    calls = outcome.message.get("tool_calls", [])
    assert all(call["type"] == "function" for call in calls)
    return [(c.get("id"), c["function"].get("name"), c["function"]["arguments"]) for c in calls]


# Which call


@pytest.mark.parametrize(
    ("fragments", "expected", "kinds"),
    [
        pytest.param(
            [call(0, "a", "f", ""), call(0, arguments="{"), call(0, arguments="}")],
            [("a", "f", "{}")],
            {},
            id="by index",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(1, "b", "g", "2"), call(0, arguments="3"), call(1, arguments="4")],
            [("a", "f", "13"), ("b", "g", "24")],
            {},
            id="parallel",
        ),
        pytest.param(
            [[call(0, "a", "f", "1"), call(1, "b", "f", "2")]],
            [("a", "f", "1"), ("b", "f", "2")],
            {},
            id="two in one chunk",
        ),
        pytest.param(
            [call(3, "b", "g", "2"), call(1, "a", "f", "1")],
            [("a", "f", "1"), ("b", "g", "2")],
            {},
            id="sorted by index",
        ),
        pytest.param(
            [call(2**40, "b", "g", "2"), call(0, "a", "f", "1")],
            [("a", "f", "1"), ("b", "g", "2")],
            {},
            id="a huge index",
        ),
        # a. a known id
        pytest.param(
            [call(0, "a", "f", "1"), call(1, "b", "g", "2"), call(1, "a", arguments="3")],
            [("a", "f", "13"), ("b", "g", "2")],
            {},
            id="the id before the index",
        ),
        pytest.param([call(0, "a", "f", "1"), call(0, "a", "f", "2")], [("a", "f", "12")], {}, id="all repeated"),
        pytest.param(
            [call(id="a", name="f", arguments="1"), call(id="b", name="g", arguments="2"), call(id="a", arguments="3")],
            [("a", "f", "13"), ("b", "g", "2")],
            {"missing-call-index": 3},
            id="known id without index",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(1, "b", "g", "2"), call(5, "a", arguments="3"), call(5, arguments="4")],
            [("a", "f", "134"), ("b", "g", "2")],
            {},
            id="an unseen index then points to the call of the id",
        ),
        # b. a known index
        pytest.param(
            [call(0, "a", "f", "1"), call(0, "b", "f", "2")],
            [("a", "f", "1"), ("b", "f", "2")],
            {"reused-call-index": 1},
            id="another id and a name",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(0, "b", "g", "2"), call(0, arguments="3"), call(0, "a", arguments="4")],
            [("a", "f", "14"), ("b", "g", "23")],
            {"reused-call-index": 1},
            id="the index points to the newer",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(0, "b", arguments="2"), call(0, "b", "", "3")],
            [("a", "f", "123")],
            {"changed-call-id": 2},
            id="another id without a name",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(0, "", "f", "2"), call(0, None, None, "3")],
            [("a", "f", "123")],
            {},
            id="empty id and name",
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":1}'), call(0, name="f", arguments='{"a":2}')],
            [(None, "f", '{"a":1}'), (None, "f", '{"a":2}')],
            {"reused-call-index": 1},
            id="two objects of one name",
        ),
        pytest.param(
            [call(0, "a", "f", '{"a":1}'), call(0, name="f", arguments='{"a":2}')],
            [("a", "f", '{"a":1}'), (None, "f", '{"a":2}')],
            {"reused-call-index": 1},
            id="two objects, the second without id",
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":1}'), call(0, "b", "f", '{"a":2}')],
            [(None, "f", '{"a":1}'), ("b", "f", '{"a":2}')],
            {"reused-call-index": 1},
            id="two objects, the first without id",
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":{"b":"\\n"}}'), call(0, name="f", arguments="{}")],
            [(None, "f", '{"a":{"b":"\\n"}}'), (None, "f", "{}")],
            {"reused-call-index": 1},
            id="an escape behind the end of another string",
        ),
        pytest.param(
            [
                call(0, name="f", arguments=" \n"),
                call(0, arguments='\t{"a":1}\n'),
                call(0, name="f", arguments='{"a":2}'),
            ],
            [(None, "f", ' \n\t{"a":1}\n'), (None, "f", '{"a":2}')],
            {"reused-call-index": 1},
            id="white space around a whole object",
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":1'), call(0, name="f", arguments='{"a":2}')],
            [(None, "f", '{"a":1{"a":2}')],
            {},
            id="the first is not whole",
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":1}'), call(0, name="f", arguments='"x"')],
            [(None, "f", '{"a":1}"x"')],
            {},
            id="the second is no object",
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":1}'), call(0, name="f")], [(None, "f", '{"a":1}')], {}, id="a name alone"
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":1}'), call(0, arguments='{"a":2}')],
            [(None, "f", '{"a":1}{"a":2}')],
            {},
            id="arguments alone",
        ),
        pytest.param(
            [call(0, name="f", arguments="{}"), call(0, name="f", arguments='{"a":2}')],
            [(None, "f", '{"a":2}')],
            {"placeholder-arguments": 1},
            id="a bare object of the same name",
        ),
        pytest.param(
            [call(0, name="f", arguments="{}"), call(0, name="g", arguments='{"a":2}')],
            [(None, "f", "{}"), (None, "g", '{"a":2}')],
            {"reused-call-index": 1},
            id="a bare object of another name",
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":"}'), call(0, name="f", arguments='{"}')],
            [(None, "f", '{"a":"}{"}')],
            {},
            id="braces in strings do not count",
        ),
        pytest.param(
            [call(0, name="f", arguments='{"a":"\\"}'), call(0, name="f", arguments='{"}')],
            [(None, "f", '{"a":"\\"}{"}')],
            {},
            id="an escaped quote ends no string",
        ),
        pytest.param(
            [
                call(0, name="f", arguments='{"a":"\\'),
                call(0, arguments='"}"'),
                call(0, arguments="}"),
                call(0, name="f", arguments="{"),
            ],
            [(None, "f", '{"a":"\\"}"}'), (None, "f", "{")],
            {"reused-call-index": 1},
            id="a backslash at the end of a fragment",
        ),
        pytest.param(
            [call(0, name="f", arguments={"a": 1}), call(0, name="f", arguments={"a": 2})],
            [(None, "f", '{"a":1}'), (None, "f", '{"a":2}')],
            {"object-arguments": 2, "reused-call-index": 1},
            id="two objects given as objects",
        ),
        # c. no index
        pytest.param(
            [call(id="a", name="f", arguments="1"), call(id="b", arguments="2")],
            [("a", "f", "1"), ("b", None, "2")],
            {"missing-call-index": 2},
            id="a new id opens",
        ),
        pytest.param(
            [call(name="f", arguments="1"), call(id="b", arguments="2")],
            [("b", "f", "12")],
            {"missing-call-index": 2},
            id="a new id alone names a call without id",
        ),
        pytest.param(
            [call(name="f", arguments="1"), call(id="b", name="f", arguments="2")],
            [(None, "f", "1"), ("b", "f", "2")],
            {"missing-call-index": 2},
            id="a new id with a name opens",
        ),
        pytest.param(
            [call(name="f", arguments="1"), call(name="g", arguments="2")],
            [(None, "f", "1"), (None, "g", "2")],
            {"missing-call-index": 2},
            id="another name opens",
        ),
        pytest.param(
            [call(name="f", arguments="{"), call(name="f", arguments="}")],
            [(None, "f", "{}")],
            {"missing-call-index": 2},
            id="the same name continues",
        ),
        pytest.param(
            [call(name="f", arguments='{"a":1}'), call(name="f", arguments="2")],
            [(None, "f", '{"a":1}'), (None, "f", "2")],
            {"missing-call-index": 2},
            id="the same name after an object opens",
        ),
        pytest.param(
            [call(name="f", arguments="{}"), call(name="f", arguments='{"a":1}')],
            [(None, "f", '{"a":1}')],
            {"missing-call-index": 2, "placeholder-arguments": 1},
            id="the same name after a placeholder continues",
        ),
        pytest.param(
            [call(name="f", arguments="1"), call(name="f", arguments="2")],
            [(None, "f", "12")],
            {"missing-call-index": 2},
            id="the same name after what is no object continues",
        ),
        pytest.param(
            [call(name="f", arguments="X{}"), call(name="f", arguments="{")],
            [(None, "f", "X{}{")],
            {"missing-call-index": 2},
            id="what does not begin with its brace is no object",
        ),
        pytest.param(
            [call(name="f", arguments='{}"'), call(name="f", arguments="{")],
            [(None, "f", '{}"{')],
            {"missing-call-index": 2},
            id="a string begun behind an object is no end",
        ),
        pytest.param(
            [call(name="f", arguments='{"a'), call(arguments='":1}'), call(name="f", arguments="2")],
            [(None, "f", '{"a":1}'), (None, "f", "2")],
            {"missing-call-index": 3},
            id="a string ends where a fragment begins",
        ),
        pytest.param(
            [call(name="f", arguments='{"a'), call(arguments='":{"b":"\\n"}}'), call(name="f", arguments="2")],
            [(None, "f", '{"a":{"b":"\\n"}}'), (None, "f", "2")],
            {"missing-call-index": 3},
            id="and an escape comes after it",
        ),
        pytest.param(
            [call(id="a", arguments="1"), call(name="f", arguments="2")],
            [("a", "f", "12")],
            {"missing-call-index": 2},
            id="a name for a call without one",
        ),
        pytest.param(
            [call(id="a", name="f", arguments="1"), call(arguments="2"), call(id="", name="", arguments="3")],
            [("a", "f", "123")],
            {"missing-call-index": 3},
            id="otherwise the newest",
        ),
        pytest.param(
            [[call(id="a", name="f", arguments="1"), call(id="b", name="f", arguments="2")]],
            [("a", "f", "1"), ("b", "f", "2")],
            {"missing-call-index": 2},
            id="two in one chunk without index",
        ),
        pytest.param(
            [call(arguments="1"), call(arguments="2")],
            [(None, None, "12")],
            {"missing-call-index": 2},
            id="nothing but arguments",
        ),
        # d. an unseen index
        pytest.param(
            [call(0, "a", "f", "1"), call(1, arguments="2"), call(1, arguments="3")],
            [("a", "f", "123")],
            {"unseen-call-index": 1},
            id="an unseen index continues",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(1, arguments="2"), call(1, "b", "g", "3")],
            [("a", "f", "12"), ("b", "g", "3")],
            {"unseen-call-index": 1, "reused-call-index": 1},
            id="and can be reused",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(1, name="g", arguments="2")],
            [("a", "f", "1"), (None, "g", "2")],
            {},
            id="an unseen index with a name opens",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(1, "b", arguments="2")],
            [("a", "f", "1"), ("b", None, "2")],
            {},
            id="an unseen index with an id opens",
        ),
        pytest.param(
            [call(4, arguments="1"), call(4, "a", "f", "2")],
            [("a", "f", "12")],
            {},
            id="the first fragment opens, whatever it lacks",
        ),
        # order
        pytest.param(
            [call(5, "a", "f", "1"), call(id="b", name="g", arguments="2"), call(0, "c", "h", "3")],
            [("c", "h", "3"), ("b", "g", "2"), ("a", "f", "1")],
            {"missing-call-index": 1},
            id="a call without index sorts by the calls before it",
        ),
        pytest.param(
            [call(0, "a", "f", "1"), call(1, "b", "f", "2"), call(0, "c", "f", "3")],
            [("a", "f", "1"), ("c", "f", "3"), ("b", "f", "2")],
            {"reused-call-index": 1},
            id="equal indexes in the order of arrival",
        ),
        pytest.param([call(0, name="f", arguments="1"), call(0, "late")], [("late", "f", "1")], {}, id="a late id"),
        pytest.param(
            [call(0, name="f", arguments="1"), call(0, "late"), call(id="late", arguments="2")],
            [("late", "f", "12")],
            {"missing-call-index": 1},
            id="a late id is known from then on",
        ),
        # left out
        pytest.param([call(0, type="function"), call(1, "b", "g", "2")], [("b", "g", "2")], {}, id="a call of nothing"),
        pytest.param([call(0, "", "", ""), call(0, None, None, None)], [], {}, id="only empty calls"),
    ],
)
def test_which_call(backend: Backend, fragments: list[Any], expected: list[Any], kinds: dict[str, int]) -> None:
    outcome = calls_of(backend, *fragments)
    assert short(outcome) == expected
    assert outcome.kinds == kinds
    assert [(c[0], c[2], c[3]) for c in outcome.calls[0]] == expected
    assert bool(outcome.seen & Seen.TOOL_CALL) == bool(expected)
    assert ("tool_calls" in outcome.message) == bool(expected)


@pytest.mark.parametrize("index", [None, -1, 2**63, 0.0, 1.5, "0", True, [0], {}])
def test_an_index_that_is_none(backend: Backend, index: Any) -> None:
    outcome = calls_of(backend, call(0, "a", "f", "1"), call(index, "b", "g", "2"), call(index, arguments="3"))
    assert short(outcome) == [("a", "f", "1"), ("b", "g", "23")]
    assert outcome.kinds == {"missing-call-index": 2}


@pytest.mark.parametrize("id", [7, True, ["a"], {}])
def test_an_id_of_another_type(backend: Backend, id: Any) -> None:
    outcome = calls_of(backend, call(0, id, "f", "1"), call(0, id, arguments="2"))
    assert short(outcome) == [(None, "f", "12")]
    assert outcome.kinds == {"ignored-value": 2}


def test_two_choices_have_their_own_calls(backend: Backend) -> None:
    chunks = [chunk({"tool_calls": [call(0, "a", "f", str(i))]}, i) for i in range(2)]
    outcome = merged(backend, *chunks, *chunks, "[DONE]")
    assert outcome.calls == {i: [("a", "function", "f", f"{i}{i}")] for i in range(2)}


def test_calls_as_one_object(backend: Backend) -> None:
    """An early text-generation-inference sends each fragment without the list around it."""
    fragments = [call(0, "", "f", '{"a"', type="function"), call(0, "", None, ":1}", type="function"), {}, {"id": "a"}]
    outcome = merged(backend, *(chunk({"tool_calls": fragment}) for fragment in fragments), *END)
    assert outcome.message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    ]
    assert outcome.seen & Seen.TOOL_CALL
    assert outcome.kinds == {"missing-call-index": 1}


def test_a_call_as_one_object_beside_lists(backend: Backend) -> None:
    values = [call(1, "b", "g", {"x": 1.50}), [call(0, "a", "f", "1")], call(1, arguments=""), [call(0, arguments="2")]]
    outcome = merged(backend, *(chunk({"tool_calls": value}) for value in values), *END)
    assert short(outcome) == [("a", "f", "12"), ("b", "g", '{"x":1.5}')]
    assert outcome.kinds == {"object-arguments": 1}


def test_a_message_with_one_call_as_an_object(backend: Backend) -> None:
    body = {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "tool_calls": call(id="a", name="f", arguments="{}")}}
        ]
    }
    assert short(merged(backend, body, "[DONE]")) == [("a", "f", "{}")]


@pytest.mark.parametrize("value", [None, [], {}])
def test_no_calls(backend: Backend, value: Any) -> None:
    outcome = merged(backend, chunk({"content": "x", "tool_calls": value}), *END)
    assert outcome.message == {"role": "assistant", "content": "x"}
    assert outcome.diagnostics == []
    again = merged(backend, chunk({"tool_calls": [call(0, "a", "f", "1")]}), chunk({"tool_calls": value}), *END)
    assert short(again) == [("a", "f", "1")]


@pytest.mark.parametrize(("value", "ignored"), [("x", 1), (7, 1), ({"index": 0}, 0), ([None], 0), (["x", 7, []], 3)])
def test_calls_that_are_none(backend: Backend, value: Any, ignored: int) -> None:
    outcome = merged(backend, chunk({"tool_calls": value}), *END)
    assert "tool_calls" not in outcome.message
    assert outcome.kinds == ({"ignored-value": ignored} if ignored else {})


@pytest.mark.parametrize("key", ["function", "custom"])
@pytest.mark.parametrize(("value", "ignored"), [(None, 0), ("x", 1), (7, 1), ([], 1)])
def test_a_function_that_is_none(backend: Backend, key: str, value: Any, ignored: int) -> None:
    outcome = calls_of(backend, {"index": 0, "id": "a", key: value})
    assert same(outcome.message["tool_calls"], [{"id": "a", "type": "function"}])
    assert outcome.kinds == ({"ignored-value": ignored} if ignored else {})


# Names and types


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["f", "f"], "f"),
        (["get", "get_time"], "get_time"),
        (["get_", "time"], "get_time"),
        (["get_", "time", "get_time"], "get_time"),
        ([None, "", "f", ""], "f"),
        (["é\ud83d", "\ude00"], "é\ufffd\ufffd"),
    ],
)
def test_names(backend: Backend, names: list[Any], expected: str) -> None:
    outcome = calls_of(backend, *(call(0, "a", name) for name in names))
    assert same(
        outcome.message["tool_calls"],
        [{"id": "a", "type": "function", "function": {"name": expected, "arguments": ""}}],
    )
    assert outcome.kinds == ({"lone-surrogate": 2} if "\ufffd" in expected else {})


def test_a_name_behind_arguments(backend: Backend) -> None:
    fragments = [call(0, "a", "get", "{"), call(0, "a", "time"), call(0, "a", "get_time"), call(0, "a", "x", "}")]
    outcome = calls_of(backend, *fragments)
    assert short(outcome) == [("a", "get_time", "{}")]
    assert outcome.diagnostics == [("ignored-name", 2, offset_of([chunk({"tool_calls": [f]}) for f in fragments], 1))]


@pytest.mark.parametrize("name", [7, True, ["f"], {}])
def test_a_name_of_another_type(backend: Backend, name: Any) -> None:
    outcome = calls_of(backend, call(0, "a", name, "1"))
    assert short(outcome) == [("a", None, "1")]
    assert outcome.kinds == {"ignored-value": 1}
    assert not calls_of(backend, call(0, name=name)).seen & Seen.TOOL_CALL


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([{"type": "function"}, {"type": "x"}], "function"),
        ([{"type": ""}, {"type": None}, {"type": "mcp"}, {"type": "x"}], "mcp"),
        ([{}], "function"),
        ([{"function": {}}], "function"),
        ([{"custom": {}}], "custom"),
        ([{"custom": {}}, {"function": {}}], "function"),
        ([{"type": "function"}, {"custom": {"input": "x"}}], "function"),
    ],
)
def test_type(backend: Backend, members: list[Any], expected: str) -> None:
    outcome = calls_of(backend, *({"index": 0, "id": "a"} | m for m in members))
    assert outcome.message["tool_calls"][0]["type"] == expected
    assert outcome.calls[0][0][1] == expected
    assert outcome.diagnostics == []


def test_a_type_of_another_type(backend: Backend) -> None:
    outcome = calls_of(backend, call(0, "a", "f", "1", type=7), call(0, type=["x"]))
    assert short(outcome) == [("a", "f", "1")]
    assert outcome.kinds == {"ignored-value": 2}


# Arguments


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ('{ "a" : [ 1 , 2.50 ] , "b" : " x " }', '{"a":[1,2.50],"b":" x "}'),
        (
            '{"n":1E5,"m":-0,"k":1.000000000000000000001,"a":1,"a":2}',
            '{"n":1E5,"m":-0,"k":1.000000000000000000001,"a":1,"a":2}',
        ),
        ('{"s":"\\u00e9\\/\\n\u00e9"}', '{"s":"\\u00e9\\/\\n\u00e9"}'),
        ("[ ]", "[]"),
        ("{ }", "{}"),
        ("1.50", "1.50"),
        ("true", "true"),
        ("false", "false"),
        ("0", "0"),
    ],
)
@pytest.mark.parametrize(("key", "given"), [("function", "arguments"), ("custom", "input")])
@pytest.mark.parametrize("piece", ["delta", "message"])
def test_arguments_as_a_value(backend: Backend, piece: str, key: str, given: str, wire: str, expected: str) -> None:
    fragment = f'{{"index":0,"id":"a","{key}":{{"name":"f","{given}":{wire}}}}}'
    outcome = merged(backend, f'{{"choices":[{{"index":0,"{piece}":{{"tool_calls":[{fragment}]}}}}]}}', *END)
    assert outcome.message["tool_calls"] == [{"id": "a", "type": key, key: {"name": "f", given: expected}}]
    assert outcome.diagnostics == [("object-arguments", 1, 0)]


def test_arguments_as_a_value_of_a_chunk_object(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed_chunk(chunk({"tool_calls": [call(0, "a", "f", {"b": "é", "a": [1, 2.5, None]})]}))
    [held] = accumulator.tool_calls()
    assert held.arguments == '{"b":"é","a":[1,2.5,null]}'
    assert held.parse() == {"b": "é", "a": [1, 2.5, None]}
    assert accumulator.diagnostics == [("object-arguments", 1, None)]


@pytest.mark.parametrize(
    ("fragments", "expected", "placeholders"),
    [
        ([None], "", 0),
        ([""], "", 0),
        (["", None, "{", None, "}"], "{}", 0),
        (["{}"], "{}", 0),
        (["{}", '{"a"', ":1}"], '{"a":1}', 1),
        (["{", "}", '{"a":1}'], '{"a":1}', 1),
        (["{}", "", None, '{"a":1}'], '{"a":1}', 1),
        (["{}", "{}", "{}"], "{}", 2),
        (["{}", ' {"a":1}'], '{} {"a":1}', 0),
        (["{}", "x", "{"], "{}x{", 0),
        (["{ }", "{"], "{ }{", 0),
        (['{"a":1}', '{"a":1}'], '{"a":1}{"a":1}', 0),
        (["1", "1"], "11", 0),
        (["[]", '{"a":1}'], '[]{"a":1}', 0),
        (["\ud83d", "\ude00"], "\U0001f600", 0),
        (["not json", " at all"], "not json at all", 0),
    ],
)
def test_arguments_join(backend: Backend, fragments: list[Any], expected: str, placeholders: int) -> None:
    outcome = calls_of(backend, *(call(0, "a", "f", fragment) for fragment in fragments))
    assert short(outcome) == [("a", "f", expected)]
    assert outcome.kinds == ({"placeholder-arguments": placeholders} if placeholders else {})
    assert outcome.counts["tool_arguments"] == len(expected)


@pytest.mark.parametrize(
    ("wire", "expected", "kinds"),
    [
        (['"{}"', '"\\u007b\\"a\\":1}"'], '{"a":1}', {"placeholder-arguments": 1}),
        (['"{}"', '"\\u0020{"'], "{} {", {}),
        (['"{}"', '{"a": 1}'], '{"a":1}', {"placeholder-arguments": 1, "object-arguments": 1}),
        (
            ['"{}"', '{"a": 1}', '"{\\"b\\":2}"', "{}"],
            '{"a":1}{"b":2}{}',
            {"placeholder-arguments": 1, "object-arguments": 2},
        ),
        (["{}", "{}", '{"a": 1}'], '{"a":1}', {"placeholder-arguments": 2, "object-arguments": 3}),
        (['"{}"', "[1]", '"{"'], "{}[1]{", {"object-arguments": 1}),
    ],
)
def test_placeholders_as_they_are_spelled(
    backend: Backend, wire: list[str], expected: str, kinds: dict[str, int]
) -> None:
    head, tail = '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":', "}}]}}]}"
    chunks = [head + arguments + tail for arguments in wire]
    outcome = merged(backend, *chunks, *END)
    assert outcome.calls[0][0][3] == expected
    assert outcome.kinds == kinds
    accumulator = backend.ChatCompletionAccumulator()
    for piece, arguments in zip(chunks, wire):
        assert accumulator.feed(sse(piece)) == Seen.TOOL_CALL or arguments.strip('"') == "{}"


@pytest.mark.parametrize("more", [{}, {"strict": None}, {"strict": ""}, {"strict": {}}])
def test_arguments_are_told_whatever_stands_beside_them(backend: Backend, more: dict[str, Any]) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(sse(chunk({"tool_calls": [call(0, "a", "f")]})))
    fragment = {"index": 0, "function": {"arguments": "1", **more}, **more}
    assert accumulator.feed(sse(chunk({"tool_calls": [fragment]}))) == Seen.TOOL_CALL


def test_input_of_a_custom_tool(backend: Backend) -> None:
    fragments = [
        {"index": 0, "id": "a", "custom": {"name": "sh", "input": "ls"}},
        {"index": 0, "custom": {"input": " -l"}},
    ]
    outcome = calls_of(backend, *fragments)
    assert same(
        outcome.message["tool_calls"], [{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}]
    )
    assert outcome.calls == {0: [("a", "custom", "sh", "ls -l")]}


def test_the_old_function_call(backend: Backend) -> None:
    deltas = [
        {"name": "f", "arguments": ""},
        {"arguments": '{"a"'},
        {"arguments": ":1}", "name": None},
        None,
        {"arguments": None},
    ]
    outcome = merged(backend, *(chunk({"function_call": d}) for d in deltas), chunk(finish_reason="function_call"))
    assert same(
        outcome.message, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}}
    )
    assert outcome.seen & Seen.TOOL_CALL
    assert outcome.counts["tool_arguments"] == 7
    assert outcome.diagnostics == []


@pytest.mark.parametrize("deltas", [[{}], [{}, None, {}], [None, {}]])
def test_an_old_function_call_that_nobody_made(backend: Backend, deltas: list[Any]) -> None:
    outcome = merged(backend, *(chunk({"function_call": d}) for d in deltas), *END)
    assert same(outcome.message, {"role": "assistant", "content": None, "function_call": {}})
    assert not outcome.seen & Seen.TOOL_CALL
    outcome = merged(backend, *(chunk({"function_call": d}) for d in (*deltas, {"name": "f"})), *END)
    assert outcome.message["function_call"] == {"name": "f", "arguments": ""}


@pytest.mark.parametrize("value", ["x", 7, [1]])
def test_an_old_function_call_that_is_none(backend: Backend, value: Any) -> None:
    outcome = merged(backend, chunk({"function_call": value}), *END)
    assert outcome.message["function_call"] is None
    assert outcome.kinds == {"ignored-value": 1}


def test_never_an_empty_object_out_of_nothing(backend: Backend) -> None:
    outcome = calls_of(backend, call(0, "a", "f"))
    assert short(outcome) == [("a", "f", "")]


# Other members


def test_other_members_of_a_call(backend: Backend) -> None:
    google = {"google": {"thought_signature": "s1"}}
    outcome = calls_of(
        backend,
        call(0, "a", "f", "{", extra_content=google, status="new", note="x", n=1),
        call(0, arguments="}", extra_content=google, status="done", note="y", n=2),
    )
    assert same(
        outcome.message["tool_calls"],
        [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
                "extra_content": google,
                "status": "done",
                "note": "xy",
                "n": 2,
            }
        ],
    )


def test_other_members_of_a_function(backend: Backend) -> None:
    fragments = [{"index": 0, "function": {"name": "f", "arguments": "", "id": i, "strict": i}} for i in "ab"]
    assert same(
        calls_of(backend, *fragments).message["tool_calls"],
        [{"type": "function", "function": {"name": "f", "arguments": "", "id": "b", "strict": "ab"}}],
    )


@pytest.mark.parametrize("order", [["custom", "function"], ["function", "custom"]])
def test_function_and_custom_tool_in_the_order_they_came(backend: Backend, order: list[str]) -> None:
    members = {"custom": {"name": "c", "input": "1"}, "function": {"name": "f", "arguments": "2"}}
    outcome = calls_of(
        backend, {"index": 0, "id": "a", order[0]: members[order[0]]}, {"index": 0, order[1]: members[order[1]]}
    )
    assert same(outcome.message["tool_calls"], [{"id": "a", "type": "function", **members}])
    assert outcome.calls[0][0][2:] == (("c", "1") if order[0] == "custom" else ("f", "2"))


def test_a_call_with_an_id_alone(backend: Backend) -> None:
    assert same(calls_of(backend, call(0, "a")).message["tool_calls"], [{"id": "a", "type": "function"}])


# tool_calls()


def test_parse(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(sse(chunk({"tool_calls": [call(0, "a", "f", '{"x":')]})))
    [held] = accumulator.tool_calls()
    with pytest.raises(ValueError, match=r"not whole JSON \(at character 5 of 5\)"):
        held.parse()
    accumulator.feed(sse(chunk({"tool_calls": [call(0, arguments="[1]}")]})))
    [held] = accumulator.tool_calls()
    assert (held.id, held.type, held.name, held.parse()) == ("a", "function", "f", {"x": [1]})
    assert accumulator.tool_calls(1) == []


# Past the limit


def test_calls_past_the_limit(backend: Backend) -> None:
    outcome = calls_of(
        backend,
        call(0, "a", "f", "1"),
        call(1, "b", "g", "2"),
        call(2, "c", "h", "3"),
        call(2, arguments="4"),  # of the call not kept
        call(arguments="5"),  # of the newest, which is not kept
        call(9, arguments="6"),  # an unseen index: of the newest
        call(0, arguments="7"),
        call(2, "d", "k", "8"),
        call(1, "b", arguments="9"),
        limits={"max_tool_calls": 2},
    )
    assert short(outcome) == [("a", "f", "17"), ("b", "g", "29")]
    assert outcome.error is not None
    assert outcome.error["kind"] == "limit-exceeded"
    assert outcome.error["message"] == "more than max_tool_calls=2 in one choice"
    assert outcome.complete
    assert "4" not in json.dumps(outcome.message)


def test_nothing_of_a_call_past_the_limit_is_retained(backend: Backend) -> None:
    extra = {
        "index": 1,
        "id": "bbb",
        "type": "t",
        "more": "x",
        "function": {"name": "g", "arguments": "{}", "more": "x"},
    }
    outcome = calls_of(backend, call(0, "a", "f", "1"), extra, extra, limits={"max_tool_calls": 1})
    first = calls_of(backend, call(0, "a", "f", "1"))
    assert same(outcome.message, first.message)
    assert outcome.retained_bytes == first.retained_bytes
    assert outcome.kinds == {}
    only = backend.ChatCompletionAccumulator(Limits(max_tool_calls=1))
    only.feed(sse(chunk({"tool_calls": [call(0, "a", "f", "1")]})))
    assert only.feed(sse(chunk({"tool_calls": [extra]}))) == Seen.ERROR
    assert only.feed(sse(chunk({"tool_calls": [call(1, arguments={"a": 1})]}))) == 0
    assert [d.kind for d in only.diagnostics] == ["unseen-call-index"]  # one index is remembered, and that is 0


@pytest.mark.parametrize(
    ("fragments", "kinds"),
    [
        ([call(1, "b", "g"), call(1, "b", "g"), call(1, arguments="1")], {}),
        ([call(1, "b"), call(1, "c"), call(1, "d")], {"changed-call-id": 2}),
        ([call(1, "b", "g"), call(1, "c", "h"), call(1, "c", "h")], {"reused-call-index": 1}),
        ([call(1, name="g", arguments='{"a":1}'), call(1, name="g", arguments="{")], {"reused-call-index": 1}),
        ([call(1, name="g", arguments="{}"), call(1, name="g", arguments="{")], {}),
        ([call(1, name="g"), call(1, "b"), call(1, "c")], {"changed-call-id": 1}),
        ([call(1, "b", "g"), call(2), call(2)], {"unseen-call-index": 2}),
        ([call(1, "b", "g"), call(2, "c", "h"), call(1), call(1, name="k")], {}),
    ],
)
@pytest.mark.parametrize("before", [1, 3])
def test_calls_past_the_limit_are_followed(
    backend: Backend, fragments: list[Any], kinds: dict[str, int], before: int
) -> None:
    kept = call(id="a", name="f", arguments="1")  # without an index, so that one more can be remembered
    dropped = [call(id=f"x{n}", name="f") for n in range(before - 1)]
    outcome = calls_of(backend, kept, *dropped, *fragments, limits={"max_tool_calls": 1})
    assert short(outcome) == [("a", "f", "1")]
    assert outcome.kinds == {"missing-call-index": before, **kinds}
    assert outcome.error is not None
    assert outcome.error["kind"] == "limit-exceeded"


def test_empty_fragments_set_no_flag(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    flags = [
        accumulator.feed(sse(chunk({"tool_calls": [fragment]})))
        for fragment in (
            call(0, "", "", ""),
            call(0, "a"),
            call(0, "a"),
            call(0, name="f"),
            call(0, name="f"),
            call(0, arguments=""),
        )
    ]
    flags.append(accumulator.feed(sse(chunk({"tool_calls": [call(0, arguments="{}")]}))))
    flags.append(accumulator.feed(sse(chunk({"tool_calls": [call(0, arguments=None, type="x")]}))))
    flags.append(accumulator.feed(sse(chunk({"tool_calls": [call(0, note="")]}))))
    flags.append(accumulator.feed(sse(chunk({"tool_calls": [call(0, note="x")]}))))
    assert [bool(flag & Seen.TOOL_CALL) for flag in flags] == [
        False,
        True,
        False,
        True,
        False,
        False,
        True,
        False,
        False,
        True,
    ]
