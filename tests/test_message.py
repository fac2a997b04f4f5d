"""The members of a message: role, content and its parts, refusal, reasoning, audio, lists, and those without a rule."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from conftest import Backend
from deltafold import Seen
from streams import END, Outcome, chunk, merged, message_of, same


def deltas_of(backend: Backend, *deltas: Any) -> Outcome:
    return merged(backend, *map(chunk, deltas), *END)


def values_of(backend: Backend, name: str, *values: Any) -> Any:
    """What one member of the message comes to."""
    return message_of(backend, *({name: value} for value in values))[name]


# Role


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([], "assistant"),
        ([None], "assistant"),
        ([""], "assistant"),
        (["assistant", "assistant"], "assistant"),
        (["tool", "assistant", ""], "tool"),
        (["", None, "system"], "system"),
    ],
)
def test_role(backend: Backend, roles: list[Any], expected: str) -> None:
    assert message_of(backend, *({"role": role} for role in roles)) == {"role": expected, "content": None}


@pytest.mark.parametrize("role", [7, ["x"], {}])
def test_a_role_of_another_type(backend: Backend, role: Any) -> None:
    outcome = deltas_of(backend, {"role": role})
    assert outcome.message["role"] == "assistant"
    assert outcome.kinds == {"ignored-value": 1}


# Content


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None], None),
        ([[]], None),
        ([None, []], None),
        ([""], ""),
        (["", None], ""),
        ([None, ""], ""),
        (["a", None, "", "b", []], "ab"),
        (["ha", "ha", "ha"], "hahaha"),
        ([" ", "\n", "\x00", "\u2028"], " \n\x00\u2028"),
        ([[""]], ""),
        ([["a", "b"], "c"], [{"type": "text", "text": "abc"}]),
    ],
)
def test_content(backend: Backend, values: list[Any], expected: Any) -> None:
    outcome = deltas_of(backend, *({"content": value} for value in values))
    assert same(outcome.message, {"role": "assistant", "content": expected})
    text = expected if isinstance(expected, str) else "abc" if expected else ""
    assert outcome.texts == outcome.since == {0: text}
    assert outcome.counts["content"] == len(text)
    assert bool(outcome.seen & Seen.CONTENT) == bool(text)
    assert outcome.diagnostics == []


@pytest.mark.parametrize("value", [7, True, 1.5])
def test_content_of_another_type(backend: Backend, value: Any) -> None:
    outcome = deltas_of(backend, {"content": value}, {"content": "a"})
    assert outcome.message["content"] == "a"
    assert outcome.kinds == {"ignored-value": 1}


def text(value: str, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **members}


def thinking(value: Any, **members: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": value, **members}


IMAGE = {"type": "image_url", "image_url": {"url": "data:,x"}}


@pytest.mark.parametrize(
    ("values", "expected", "joined", "reasoning"),
    [
        ([[text("a")], [text("b")]], [text("ab")], "ab", ""),
        ([text("a"), text("b")], [text("ab")], "ab", ""),
        ([[text("a"), text("b")]], [text("ab")], "ab", ""),
        ([[text("a")], "b", [text("c")]], [text("abc")], "abc", ""),
        (["a", [IMAGE], "b"], [text("a"), IMAGE, text("b")], "ab", ""),
        (["", [IMAGE]], [IMAGE], "", ""),
        (["a", "b", [text("c")]], [text("abc")], "abc", ""),
        ([[IMAGE], [IMAGE]], [IMAGE, IMAGE], "", ""),
        ([[IMAGE], "", None, []], [IMAGE], "", ""),
        ([[text("")]], "", "", ""),
        ([[text(""), thinking("")]], "", "", ""),
        ([[thinking([text("")])]], "", "", ""),
        ([[text("")], [IMAGE]], [IMAGE], "", ""),
        ([[text("", note=1)]], [text("", note=1)], "", ""),
        ([[text("a", note=1)], [text("b", note=2, more=None)]], [text("ab", note=2, more=None)], "ab", ""),
        ([[text("a", cite=["x"])], [text("b", cite=["y"])]], [text("ab", cite=["y"])], "ab", ""),
        ([[text("a", id="x")], [text("b", id="y")]], [text("ab", id="y")], "ab", ""),
        ([[text("a")], [text("a")]], [text("aa")], "aa", ""),
        ([[text("a"), IMAGE, text("b")]], [text("a"), IMAGE, text("b")], "ab", ""),
        ([[thinking("a")], [thinking("b")]], [thinking("ab")], "", "ab"),
        ([[thinking("a", signature="")], [thinking("b", signature="s")]], [thinking("ab", signature="s")], "", "ab"),
        ([[thinking([text("a")])], [thinking([text("b")])]], [thinking([text("ab")])], "", "ab"),
        ([[thinking([text("a")])], [thinking("b")]], [thinking([text("ab")])], "", "ab"),
        (
            [[thinking([text("a")], closed=False)], [thinking([IMAGE], closed=True)]],
            [thinking([text("a"), IMAGE], closed=True)],
            "",
            "a",
        ),
        ([[thinking("a"), text("b")], "c"], [thinking("a"), text("bc")], "bc", "a"),
        ([[thinking("a")], "b", [thinking("c")]], [thinking("a"), text("b"), thinking("c")], "b", "ac"),
        ([[thinking("a")], "", [thinking("b")]], [thinking("ab")], "", "ab"),
        ([[text("a")], [thinking("")], "b"], [text("a"), text("b")], "ab", ""),
        ([[thinking(None)], [thinking([text("a")])], [thinking([text("b")])]], [thinking([text("ab")])], "", "ab"),
        ([[thinking([])], [thinking([text("a")])], [thinking([text("b")])]], [thinking([text("ab")])], "", "ab"),
        ([[thinking([])], [thinking("a")], [thinking("b")]], [thinking("ab")], "", "ab"),
        ([[thinking("a")], [thinking([text("b")])], [thinking([])]], [thinking([text("ab")])], "", "ab"),
        ([[{"type": "text", "note": 1}], "a", [text("b")]], [{"type": "text", "note": 1, "text": "ab"}], "ab", ""),
        ([[{"text": "a"}], [{"text": "b"}]], [{"text": "a"}, {"text": "b"}], "", ""),
        ([[{"type": 7}]], [{"type": 7}], "", ""),
        ([[None, text("a"), "b"]], [text("ab")], "ab", ""),
        ([{}], [{}], "", ""),
        ([[{"type": "text"}]], "", "", ""),
        ([[{"type": "thinking"}, text("a")]], [text("a")], "a", ""),
        ([[{"type": "text", "text": None}], "a"], [text("a")], "a", ""),
    ],
)
def test_content_in_parts(backend: Backend, values: list[Any], expected: Any, joined: str, reasoning: str) -> None:
    outcome = deltas_of(backend, *({"content": value} for value in values))
    assert same(outcome.message["content"], expected)
    assert outcome.texts == outcome.since == {0: joined}
    assert outcome.reasoning == {0: reasoning}
    assert outcome.counts["content"] == len(joined)
    assert outcome.counts["reasoning"] == len(reasoning)
    assert bool(outcome.seen & Seen.REASONING) == bool(reasoning)
    others = [part for part in expected if isinstance(part, dict) and part.get("type") not in ("text", "thinking")]
    assert bool(outcome.seen & Seen.CONTENT) == (joined != "" or any(others))
    assert outcome.diagnostics == []


def test_parts_of_another_type(backend: Backend) -> None:
    outcome = deltas_of(backend, {"content": [7, text("a"), [text("b")], True]})
    assert outcome.message["content"] == [text("a")]
    assert outcome.kinds == {"ignored-value": 3}


def test_two_types_of_text_are_two_parts(backend: Backend) -> None:
    parts = [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]
    assert values_of(backend, "content", parts) == parts


# Refusal


@pytest.mark.parametrize(
    ("values", "expected"), [([None], None), ([""], ""), ([None, "I ", None, "", "I "], "I I "), (["x", None], "x")]
)
def test_refusal(backend: Backend, values: list[Any], expected: Any) -> None:
    outcome = deltas_of(backend, *({"refusal": value} for value in values))
    assert same(outcome.message, {"role": "assistant", "content": None, "refusal": expected})
    assert bool(outcome.seen & Seen.REFUSAL) == bool(expected)
    assert outcome.counts["refusal"] == len(expected or "")
    assert outcome.diagnostics == []


@pytest.mark.parametrize("value", [7, True, ["x"], {"x": 1}])
def test_a_refusal_of_another_type(backend: Backend, value: Any) -> None:
    outcome = deltas_of(backend, {"refusal": "a"}, {"refusal": value})
    assert outcome.message["refusal"] == "a"
    assert outcome.kinds == {"ignored-value": 1}


# Reasoning

STRINGS = ["reasoning_content", "reasoning", "reasoning_text", "thinking"]


@pytest.mark.parametrize("name", STRINGS)
@pytest.mark.parametrize(
    ("values", "expected"),
    [([None], None), ([""], ""), (["a", None, "", "b"], "ab"), (["a", "a", "a"], "aaa"), ([None, "a", None], "a")],
)
def test_reasoning_strings(backend: Backend, name: str, values: list[Any], expected: Any) -> None:
    outcome = deltas_of(backend, *({name: value} for value in values))
    assert same(outcome.message, {"role": "assistant", "content": None, name: expected})
    assert outcome.reasoning == {0: expected or ""}
    assert outcome.counts["reasoning"] == len(expected or "")
    assert bool(outcome.seen & Seen.REASONING) == bool(expected)
    assert outcome.diagnostics == []


def test_reasoning_under_each_name(backend: Backend) -> None:
    deltas = [{name: f"{name} {i} " for name in STRINGS} for i in range(2)]
    outcome = deltas_of(backend, *deltas)
    assert {name: outcome.message[name] for name in STRINGS} == {name: f"{name} 0 {name} 1 " for name in STRINGS}
    assert outcome.reasoning == {0: "reasoning_content 0 reasoning_content 1 "}


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"thinking": "t", "reasoning_text": "x", "reasoning": "r", "reasoning_content": "c"}, "c"),
        ({"thinking": "t", "reasoning_text": "x", "reasoning": "r", "reasoning_content": ""}, "r"),
        ({"thinking": "t", "reasoning_text": "x", "reasoning": None}, "x"),
        ({"thinking": "t"}, "t"),
        (
            {
                "thinking": "",
                "content": [thinking("p")],
                "reasoning_details": [{"type": "reasoning.text", "text": "d"}],
            },
            "p",
        ),
        (
            {
                "content": "x",
                "reasoning_details": [{"type": "a", "text": "d"}, {"type": "b", "summary": "s"}, {"data": "no"}],
            },
            "ds",
        ),
        ({"content": "x"}, ""),
    ],
)
def test_which_reasoning_is_told(backend: Backend, delta: dict[str, Any], expected: str) -> None:
    outcome = deltas_of(backend, delta)
    assert outcome.reasoning == {0: expected}
    assert outcome.counts["reasoning"] == len(expected)


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([None], None),
        ([[]], []),
        ([[], None], []),
        (
            [[{"type": "t", "index": 0, "text": "a"}], [{"type": "t", "index": 0, "text": "b", "signature": None}]],
            [{"type": "t", "index": 0, "text": "ab", "signature": None}],
        ),
        (
            [
                [{"type": "t", "index": 1, "text": "a"}, {"type": "t", "index": 0, "text": "b"}],
                [{"type": "t", "index": 1, "text": "c"}],
            ],
            [{"type": "t", "index": 0, "text": "b"}, {"type": "t", "index": 1, "text": "ac"}],
        ),
        (
            [[{"type": "t", "index": 0, "text": "a"}], [{"type": "s", "index": 0, "summary": "b"}]],
            [{"type": "t", "index": 0, "text": "a"}, {"type": "s", "index": 0, "summary": "b"}],
        ),
        (
            [[{"type": "t", "text": "x"}], [{"type": "t", "index": 0, "text": "a"}]],
            [{"type": "t", "index": 0, "text": "a"}, {"type": "t", "text": "x"}],
        ),
        ([[{"type": "t", "text": "a"}], [{"type": "t", "text": "a"}]], [{"type": "t", "text": "aa"}]),
        ([[{"text": "a"}, {"text": "b"}]], [{"text": "ab"}]),
        (
            [[{"type": "t", "id": "1", "text": "a"}], [{"type": "t", "id": "1", "text": "b"}]],
            [{"type": "t", "id": "1", "text": "ab"}],
        ),
        (
            [[{"type": "t", "id": "1", "text": "a"}], [{"type": "t", "id": "2", "text": "b"}]],
            [{"type": "t", "id": "1", "text": "a"}, {"type": "t", "id": "2", "text": "b"}],
        ),
        (
            [[{"type": "t", "id": "1", "text": "a"}], [{"type": "t", "text": "b"}]],
            [{"type": "t", "id": "1", "text": "a"}, {"type": "t", "text": "b"}],
        ),
        (
            [[{"type": "t", "text": "a"}], [{"type": "s", "text": "b"}]],
            [{"type": "t", "text": "a"}, {"type": "s", "text": "b"}],
        ),
        (
            [
                [{"type": "t", "text": "a"}],
                [{"type": "t", "text": "b", "signature": "S"}],
                [{"type": "t", "text": "c"}],
            ],
            [{"type": "t", "text": "ab", "signature": "S"}, {"type": "t", "text": "c"}],
        ),
        (
            [
                [{"type": "t", "index": 0, "signature": "a"}],
                [{"type": "t", "index": 0, "signature": "b"}, {"type": "t", "index": 0, "signature": ""}],
            ],
            [{"type": "t", "index": 0, "signature": "b"}],
        ),
        (
            [
                [{"index": 0, "type": "", "id": None, "format": "f"}],
                [{"index": 0, "id": "1", "format": "g"}],
                [{"index": 0, "id": "2"}],
            ],
            [{"index": 0, "type": "", "id": "1", "format": "f"}],
        ),
        (
            [[{"type": "e", "data": "a", "n": 1}], [{"type": "e", "data": "a", "n": 2}]],
            [{"type": "e", "data": "aa", "n": 2}],
        ),
        ([[{"type": "s", "summary": "a"}], [{"type": "s", "summary": "a"}]], [{"type": "s", "summary": "aa"}]),
        ([[None, {"type": "t", "text": "a"}]], [{"type": "t", "text": "a"}]),
        (
            [[{"type": "t", "index": -1, "text": "a"}], [{"type": "t", "index": -1, "text": "b"}]],
            [{"type": "t", "index": -1, "text": "ab"}],
        ),
    ],
)
def test_reasoning_details(backend: Backend, lists: list[Any], expected: Any) -> None:
    outcome = deltas_of(backend, *({"reasoning_details": entries} for entries in lists))
    assert same(outcome.message["reasoning_details"], expected)
    assert bool(outcome.seen & Seen.REASONING) == any(d.keys() & {"text", "summary", "data"} for d in expected or ())
    assert outcome.diagnostics == []


@pytest.mark.parametrize(("value", "expected"), [("x", None), (7, None), ({"text": "a"}, None), (["x", 7], [])])
def test_reasoning_details_of_another_type(backend: Backend, value: Any, expected: Any) -> None:
    outcome = deltas_of(backend, {"reasoning_details": value})
    assert same(outcome.message["reasoning_details"], expected)
    assert outcome.kinds == {"ignored-value": 2 if expected == [] else 1}


# Audio


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("values", "expected", "recoded"),
    [
        ([None], None, 0),
        ([{}], {}, 0),
        ([{"id": "a"}, {"id": "b"}, {"id": ""}], {"id": "a"}, 0),
        ([{"id": ""}, {"id": "b"}], {"id": "b"}, 0),
        ([{"id": "a", "transcript": "so "}, {"transcript": "so "}, None], {"id": "a", "transcript": "so so "}, 0),
        ([{"expires_at": 1}, {"expires_at": 2}, {"expires_at": None}], {"expires_at": 2}, 0),
        ([{"data": "QUJD"}, {"data": "QUJD"}], {"data": "QUJDQUJD"}, 0),
        ([{"data": "QU"}, {"data": "JD"}, {"data": "RA=="}], {"data": "QUJDRA=="}, 0),
        ([{"data": b64(b"a")}, {"data": b64(b"bc")}, {"data": b64(b"def")}], {"data": b64(b"abcdef")}, 2),
        ([{"data": b64(b"a")}, {"data": b64(b"b")}], {"data": b64(b"ab")}, 1),
        ([{"data": "YQ="}, {"data": "="}, {"data": "Yg=="}], {"data": b64(b"ab")}, 1),
        ([{"data": b64(b"a") + b64(b"b")}], {"data": b64(b"ab")}, 1),
        ([{"data": "YQ"}, {"data": "=="}], {"data": "YQ=="}, 0),
        ([{"data": "YQ=="}, {"data": "Y"}], {"data": "YQ==Y"}, 1),
        ([{"data": "YQ==="}, {"data": "Yg=="}], {"data": "YQ===Yg=="}, 1),
        ([{"data": "Y-=="}, {"data": "Yg=="}], {"data": "Y-==Yg=="}, 1),
        ([{"data": ""}, {"data": None}], {"data": ""}, 0),
        ([{"format": "wav"}, {"format": "mp3"}], {"format": "mp3"}, 0),
    ],
)
def test_audio(backend: Backend, values: list[Any], expected: Any, recoded: int) -> None:
    outcome = deltas_of(backend, *({"audio": value} for value in values))
    assert same(outcome.message["audio"], expected)
    assert outcome.kinds == ({"recoded-audio": recoded} if recoded else {})
    assert bool(outcome.seen & Seen.AUDIO) == any(expected.values() if expected else ())


@pytest.mark.parametrize("value", ["x", 7, ["x"], True])
def test_audio_of_another_type(backend: Backend, value: Any) -> None:
    outcome = deltas_of(backend, {"audio": {"id": "a"}}, {"audio": value})
    assert outcome.message["audio"] == {"id": "a"}
    assert outcome.kinds == {"ignored-value": 1}


# Lists


@pytest.mark.parametrize("name", ["annotations", "images", "executed_tools", "unknown"])
@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([[]], []),
        ([None, []], []),
        ([[{"a": 1}], [{"b": 2}], None, []], [{"a": 1}, {"b": 2}]),
        ([[{"a": 1, "b": 2}], [{"b": 2, "a": 1}]], [{"a": 1, "b": 2}]),
        ([[{"a": 1}, {"a": 1}]], [{"a": 1}, {"a": 1}]),
        ([[{"a": 1}, {"a": 1}], [{"a": 1}]], [{"a": 1}, {"a": 1}]),
        ([[{"a": 1}], [{"a": 1.0}], [{"a": True}], [{"a": "1"}]], [{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}]),
        ([[{"a": 0.0}], [{"a": -0.0}], [{"a": 0}]], [{"a": 0.0}, {"a": -0.0}, {"a": 0}]),
        ([[{"a": [{"b": 1, "c": 2}]}], [{"a": [{"c": 2, "b": 1}]}]], [{"a": [{"b": 1, "c": 2}]}]),
        ([["x"], ["x"], [1], [1], [None]], ["x", "x", 1, 1, None]),
        ([[["x"]], [["x"]]], [["x"], ["x"]]),
        (
            [[{"index": 1, "t": "a"}], [{"index": 0, "t": "b"}], [{"index": 1, "t": "c"}]],
            [{"index": 0, "t": "b"}, {"index": 1, "t": "ac"}],
        ),
        ([[{"index": 0, "t": "a"}], [{"index": 0, "t": "a"}]], [{"index": 0, "t": "a"}]),
        ([[{"index": 0, "t": "a"}], [{"index": 0, "t": "a"}], [{"index": 0, "t": "b"}]], [{"index": 0, "t": "aab"}]),
        (
            [[{"a": 1}, {"index": 5, "u": {"t": "x"}}], ["z"], [{"index": 5, "u": {"t": "y"}}]],
            [{"index": 5, "u": {"t": "xy"}}, {"a": 1}, "z"],
        ),
        (
            [[{"index": 0, "type": "a", "id": "1"}], [{"index": 0, "type": "b", "id": ""}]],
            [{"index": 0, "type": "b", "id": "1"}],
        ),
        (
            [[{"index": "0", "t": "a"}], [{"index": 1.0, "t": "b"}]],
            [{"index": "0", "t": "a"}, {"index": 1.0, "t": "b"}],
        ),
        ([[{"index": -1, "t": "a"}], [{"index": -1, "t": "b"}]], [{"index": -1, "t": "a"}, {"index": -1, "t": "b"}]),
    ],
)
def test_lists_of_a_delta(backend: Backend, name: str, lists: list[Any], expected: Any) -> None:
    assert same(values_of(backend, name, *lists), expected)


def test_an_entry_with_nan_equals_itself(backend: Backend) -> None:
    outcome = merged(backend, *['{"choices":[{"index":0,"delta":{"images":[{"a":NaN}]}}]}'] * 2, *END)
    assert len(outcome.message["images"]) == 1
    assert outcome.kinds == {"non-finite-number": 2}


def test_equal_entries_of_two_choices_are_two(backend: Backend) -> None:
    outcome = merged(backend, *(chunk({"images": [{"a": 1}]}, i) for i in (0, 1)), "[DONE]")
    assert [c["message"]["images"] for c in outcome.result["choices"]] == [[{"a": 1}], [{"a": 1}]]


# Members without a rule


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a"], "a"),
        (["a", "b"], "ab"),
        (["a", "a", "a"], "a"),
        (["a", "a", "b"], "aab"),
        (["a", "b", "a"], "aba"),
        (["a", "", None, "a"], "a"),
        (["", "a", "b"], "ab"),
        (["", None], ""),
        ([None, "a"], "a"),
        (["\ud83d", "\ude00"], "\U0001f600"),
        (["\ud83d\ude00", "\U0001f600"], "\U0001f600"),
        ([1, 2, None], 2),
        ([1, 2.5], 2.5),
        ([True, False], False),
        ([{"a": "x"}, {"a": "y", "b": 1}, {"b": None}], {"a": "xy", "b": 1}),
        ([{"id": "x"}, {"id": "y"}, {"id": ""}], {"id": "y"}),
        ([{"a": {"status": "x", "t": "1"}}, {"a": {"status": "y", "t": "2"}}], {"a": {"status": "y", "t": "12"}}),
        ([{}, None], {}),
        ([None], None),
        ([[1], [1], []], [1, 1]),
    ],
)
def test_other_members_join(backend: Backend, nested: bool, values: list[Any], expected: Any) -> None:
    held = values_of(backend, "extra", *({"in": v} if nested else v for v in values))
    assert same(held["in"] if nested else held, expected)


@pytest.mark.parametrize("name", ["id", "type", "name", "channel", "format", "status"])
def test_names_that_never_join(backend: Backend, name: str) -> None:
    assert values_of(backend, name, "a", "b", "", None, "b") == "b"
    assert values_of(backend, "x", *({"y": [{"index": 0, name: v}]} for v in ("a", "b", "", None))) == {
        "y": [{"index": 0, name: "b"}]
    }


@pytest.mark.parametrize(
    ("values", "expected", "changed"),
    [
        (["a", 1], 1, 1),
        ([1, "a", "b"], "ab", 1),
        (["a", {"b": 1}], {"b": 1}, 1),
        ([{"b": 1}, "a"], "a", 1),
        ([1, True], True, 1),
        ([1, [2]], [2], 1),
        ([[2], {"a": 1}], {"a": 1}, 1),
        ([{"a": 1}, [2]], [2], 1),
        ([[1], 2, [3]], [3], 2),
        ([None, "a"], "a", 0),
        ([1, 2.0], 2.0, 0),
        (["a", None, [], {}], "a", 0),
    ],
)
def test_a_change_of_type(backend: Backend, values: list[Any], expected: Any, changed: int) -> None:
    outcome = deltas_of(backend, *({"extra": value} for value in values))
    assert same(outcome.message["extra"], expected)
    assert outcome.kinds == ({"changed-type": changed} if changed else {})


def test_a_change_of_type_forgets_a_waiting_half(backend: Backend) -> None:
    outcome = deltas_of(
        backend, {"extra": {"a": "\ud83d"}}, {"extra": 1}, {"more": [{"index": 0, "t": "\ud83d"}]}, {"more": 2}
    )
    assert same(outcome.message, {"role": "assistant", "content": None, "extra": 1, "more": 2})
    assert outcome.kinds == {"changed-type": 2}


def test_names_and_signatures(backend: Backend) -> None:
    deltas = [{"name": "x", "tool_call_id": "c", "thought_signature": "s"}] * 3
    assert same(message_of(backend, *deltas), {"role": "assistant", "content": None} | deltas[0])


# text_since


def test_text_since(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    cursor, told = None, []
    for value in ("ab", "", None, "\ud83d", "\ude00c", [{"type": "text", "text": "d"}, IMAGE], "e\ud83d", "f"):
        accumulator.feed_chunk(chunk({"content": value}))
        new, cursor = accumulator.text_since(cursor)
        told.append(new)
    assert told == ["ab", "", "", "", "\U0001f600c", "d", "e", "\ufffdf"]
    assert accumulator.text_since(cursor) == ("", cursor)
    assert accumulator.text_since()[0] == accumulator.text() == "ab\U0001f600cde\ufffdf"


def test_text_since_of_an_unknown_choice(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    new, cursor = accumulator.text_since(None, 1)
    assert (new, accumulator.text(1), accumulator.reasoning_text(1), accumulator.text(-1)) == ("", "", "", "")
    accumulator.feed_chunk(chunk({"content": "a"}, 1))
    assert accumulator.text_since(cursor, 1)[0] == "a"
    assert accumulator.text_since(cursor, 0)[0] == ""
