"""Chunks → completion: envelope, choices, finish reasons, logprobs, unknown members, messages, order of members."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conftest import Backend
from deltafold import Seen
from streams import END, chunk, entry, merged, message_of, offset_of, same, sse

BIG = 2**63 - 1


def of(backend: Backend, *chunks: Any, **options: Any) -> dict[str, Any]:
    """The result of whole and harmless chunks."""
    outcome = merged(backend, *chunks, *END, **options)
    assert outcome.error is None
    assert outcome.diagnostics == []
    return outcome.result


# id, created, model and their like


def test_first_id_and_created(backend: Backend) -> None:
    outcome = merged(backend, {"id": "", "created": 0}, {"id": "a", "created": 5}, {"id": "a", "created": 6}, *END)
    assert (outcome.result["id"], outcome.result["created"], outcome.id) == ("a", 5, "a")
    assert outcome.diagnostics == []


def test_a_changed_id_is_told(backend: Backend) -> None:
    chunks = [{"id": "a"}, {"id": ""}, {"id": None}, {"id": "b"}, {"id": "a"}, {"id": "c"}, *END]
    outcome = merged(backend, *chunks)
    assert outcome.result["id"] == "a"
    assert outcome.diagnostics == [("changed-id", 2, offset_of(chunks, 3))]


@pytest.mark.parametrize(
    ("wire", "created", "kinds"),
    [
        ("17", 17, {}),
        ("17.9", 17, {"converted-created": 1}),
        ("1.7e9", 1700000000, {"converted-created": 1}),
        ('"17"', 17, {"converted-created": 1}),
        ('"0017"', 17, {"converted-created": 1}),
        ("-3", -3, {}),
        ("0", 0, {}),
        ("-0", 0, {}),
        ('"0"', 0, {"converted-created": 1}),
        ("null", None, {}),
        ("1e30", 10**30 + 19884624838656, {"converted-created": 1}),  # the double nearest to it
    ],
)
def test_created_is_an_int(backend: Backend, wire: str, created: int | None, kinds: dict[str, int]) -> None:
    outcome = merged(backend, '{"created":' + wire + "}", *END)
    assert same(outcome.result["created"], created)
    assert outcome.kinds == kinds


@pytest.mark.parametrize("wire", ['"1.5"', '"-3"', '"x"', '"١"', "true", "[]", "{}", "NaN", "1e400"])
def test_created_that_is_no_number(backend: Backend, wire: str) -> None:
    outcome = merged(backend, '{"created":' + wire + "}", *END)
    assert "created" not in outcome.result
    assert outcome.kinds["ignored-value"] == 1


@pytest.mark.parametrize("wire", ['"x"', "true", "[]", "NaN", "1e400"])
def test_created_that_is_no_number_behind_one(backend: Backend, wire: str) -> None:
    outcome = merged(backend, {"created": 5}, '{"created":' + wire + "}", *END)
    assert outcome.result["created"] == 5
    assert outcome.kinds["ignored-value"] == 1


@pytest.mark.parametrize("digits", [4299, 4300, 4301, 4302])
def test_created_in_a_string_has_the_digits_of_an_integer_at_most(backend: Backend, digits: int) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(sse({"created": "7" * digits}))
    assert accumulator.result().get("created") == (None if digits > 4300 else (10**digits - 1) // 9 * 7)
    assert [d.kind for d in accumulator.diagnostics] == ["ignored-value" if digits > 4300 else "converted-created"]


def test_created_becomes_better_only(backend: Backend) -> None:
    assert of(backend, {"created": None}, {"created": 0}, {"created": None})["created"] == 0
    assert (
        of(backend, {"created": None}, {"created": 0}, {"created": 7}, {"created": 0}, {"created": None})["created"]
        == 7
    )


def test_what_is_not_taken_is_not_converted(backend: Backend) -> None:
    assert of(backend, {"created": 0}, {"created": "0"})["created"] == 0
    assert of(backend, {"created": 5}, {"created": 7.5}, {"created": ""})["created"] == 5


@pytest.mark.parametrize("name", ["model", "system_fingerprint", "service_tier"])
def test_last_that_is_not_empty(backend: Backend, name: str) -> None:
    outcome = merged(backend, *({name: value} for value in (None, "a", "b", "", None)), *END)
    assert outcome.result[name] == "b"
    assert outcome.diagnostics == []
    assert outcome.model == ("b" if name == "model" else None)


@pytest.mark.parametrize("name", ["id", "model", "system_fingerprint", "service_tier"])
@pytest.mark.parametrize(("values", "expected"), [([None], None), ([""], ""), ([None, ""], ""), (["", None], "")])
def test_null_and_empty_where_nothing_better_came(
    backend: Backend, name: str, values: list[Any], expected: Any
) -> None:
    assert of(backend, *({name: value} for value in values))[name] == expected


@pytest.mark.parametrize("name", ["id", "model", "system_fingerprint", "service_tier"])
@pytest.mark.parametrize("value", [7, True, 1.5, ["x"], {"x": 1}])
def test_a_name_of_another_type_is_ignored(backend: Backend, name: str, value: Any) -> None:
    outcome = merged(backend, {name: value}, {name: "x"}, {name: value}, *END)
    assert outcome.result[name] == "x"
    assert outcome.kinds == {"ignored-value": 2}


def test_absent_stays_absent(backend: Backend) -> None:
    assert same(
        of(backend),
        {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}],
        },
    )


def test_names_are_what_their_escapes_spell(backend: Backend) -> None:
    entry = '{"\\u0078":7,"ind\\u0065x":3,"d\\u0065lta":{"\\u0063ontent":"a"},"finish_reason":"stop"}'
    outcome = merged(backend, '{"choic\\u0065s":[' + entry + "]}", "[DONE]")
    assert outcome.diagnostics == []
    assert same(
        outcome.result["choices"],
        [{"index": 3, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop", "x": 7}],
    )


@pytest.mark.parametrize("value", ["chat.completion.chunk", "chat.completion", "thread", "", None, 7, ["x"]])
def test_object_is_fixed(backend: Backend, value: Any) -> None:
    assert of(backend, {"object": value})["object"] == "chat.completion"


def test_nothing_yet(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    assert accumulator.result() == {"object": "chat.completion", "choices": []}
    assert accumulator.result_json() == b'{"object":"chat.completion","choices":[]}'
    assert (accumulator.id, accumulator.model, accumulator.usage) == (None, None, None)


# Choices


def test_choices_by_index(backend: Backend) -> None:
    deltas = [(2, "c"), (0, "a"), (BIG, "z"), (2, "C"), (0, "A")]
    outcome = merged(backend, *(chunk({"content": text}, i) for i, text in deltas), "[DONE]")
    assert [(c["index"], c["message"]["content"]) for c in outcome.result["choices"]] == [
        (0, "aA"),
        (2, "cC"),
        (BIG, "z"),
    ]
    assert list(outcome.finish_reasons) == [0, 2, BIG]
    assert outcome.diagnostics == []


@pytest.mark.parametrize("index", [None, -1, 2**63, 1.0, 0.0, "1", True, [1], {}])
def test_an_index_that_is_none_is_the_position(backend: Backend, index: Any) -> None:
    both = {"choices": [entry({"content": "a"}), entry({"content": "b"}, index)]}
    outcome = merged(backend, both, both, "[DONE]")
    assert [(c["index"], c["message"]["content"]) for c in outcome.result["choices"]] == [(0, "aa"), (1, "bb")]
    assert outcome.diagnostics == [("missing-choice-index", 2, 0)]


def test_a_missing_index_is_the_position(backend: Backend) -> None:
    outcome = merged(backend, {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}, "[DONE]")
    assert outcome.texts == {0: "a", 1: "b"}
    assert outcome.kinds == {"missing-choice-index": 2}


def test_the_same_choice_twice_in_a_chunk(backend: Backend) -> None:
    assert (
        of(backend, {"choices": [entry({"content": "a"}), entry({"content": "b"})]})["choices"][0]["message"]["content"]
        == "ab"
    )


@pytest.mark.parametrize("choices", ['"choices":null', '"choices":[]', '"choices":[null]', '"model":"m"'])
def test_chunks_without_choices(backend: Backend, choices: str) -> None:
    assert of(backend, "{" + choices + "}", chunk({"content": "a"}))["choices"][0]["message"]["content"] == "a"


@pytest.mark.parametrize("choices", ["x", 7, {"index": 0}, [7], ["x"], [[]]])
def test_choices_that_are_none(backend: Backend, choices: Any) -> None:
    outcome = merged(backend, {"choices": choices, "model": "m"}, *END)
    assert (outcome.model, len(outcome.result["choices"])) == ("m", 1)
    assert outcome.kinds == {"ignored-value": 1}


@pytest.mark.parametrize("members", ['"delta":null,', ""])
def test_without_a_delta_the_rest_counts(backend: Backend, members: str) -> None:
    outcome = merged(backend, '{"choices":[{' + members + '"index":0,"finish_reason":"length","stop":1}]}', "[DONE]")
    assert same(
        outcome.choice,
        {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "length", "stop": 1},
    )
    assert outcome.diagnostics == []


@pytest.mark.parametrize("name", ["delta", "message"])
@pytest.mark.parametrize("value", ["x", 7, ["x"], True])
def test_a_delta_that_is_none(backend: Backend, name: str, value: Any) -> None:
    outcome = merged(backend, {"choices": [{"index": 0, name: value, "finish_reason": "stop"}]})
    assert same(outcome.message, {"role": "assistant", "content": None})
    assert outcome.kinds == {"ignored-value": 1}


def test_n_1_folds_every_choice(backend: Backend) -> None:
    chunks = [chunk({"content": text}, i) for i, text in enumerate("abc")]
    outcome = merged(backend, *chunks, chunk(index="x", finish_reason="stop"), "[DONE]", n=1)
    assert (outcome.choice["index"], outcome.message["content"], outcome.choice["finish_reason"]) == (0, "abc", "stop")
    assert outcome.diagnostics == []


# Finish reasons


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([None], None),
        ([""], None),
        (["stop"], "stop"),
        (["stop", None, ""], "stop"),
        (["tool_calls", "stop"], "tool_calls"),
        (["stop", "length"], "length"),
        (["tool_calls", "length"], "length"),
        (["length", "stop", "content_filter"], "content_filter"),
        (["COMPLETE eos\u2028"], "COMPLETE eos\u2028"),
        (["stop", "STOP"], "STOP"),
        (["null"], None),
        (["null", "null", "stop"], "stop"),
        (["null", "length", "null"], "length"),
        (["NULL"], "NULL"),
    ],
)
def test_finish_reason(backend: Backend, reasons: list[Any], expected: str | None) -> None:
    outcome = merged(backend, *(chunk(finish_reason=reason) for reason in reasons), "[DONE]")
    assert outcome.choice["finish_reason"] == expected
    assert outcome.finish_reasons == {0: expected}
    assert bool(outcome.seen & Seen.FINISH) == (expected is not None)
    assert outcome.diagnostics == []


def test_a_stream_whose_only_reason_is_the_text_null_was_cut(backend: Backend) -> None:
    outcome = merged(backend, chunk({"content": "a"}, finish_reason="null"))
    assert not outcome.complete
    assert outcome.error is not None
    assert outcome.error["kind"] == "truncated"


@pytest.mark.parametrize("value", [7, True, {"type": "stop"}, ["stop"]])
def test_a_finish_reason_of_another_type(backend: Backend, value: Any) -> None:
    outcome = merged(backend, chunk(finish_reason=value))
    assert outcome.choice["finish_reason"] is None
    assert not outcome.complete
    assert outcome.kinds == {"ignored-value": 1}


# Logprobs


def token(text: str) -> dict[str, Any]:
    return {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []}


def test_logprobs_extend(backend: Backend) -> None:
    a, b, c = map(token, "abc")
    outcome = merged(
        backend,
        chunk({"content": "ab"}, logprobs={"content": [a, b], "refusal": None}),
        chunk({"content": "b"}, logprobs=None),
        chunk({"content": "b"}, logprobs={"content": [b], "refusal": [c]}),
        *END,
    )
    assert same(outcome.choice["logprobs"], {"content": [a, b, b], "refusal": [c]})
    assert outcome.seen & Seen.LOGPROBS
    assert outcome.diagnostics == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None], None),
        ([{}], {}),
        ([None, {}], {}),
        ([{}, None], {}),
        ([{"content": []}], {"content": []}),
        ([{"content": None}], {"content": None}),
        ([{"content": None}, {"content": []}], {"content": []}),
        ([{"content": []}, {"content": None}], {"content": []}),
        ([{"content": None, "refusal": []}], {"content": None, "refusal": []}),
        ([{"content": [1]}, {"content": None}, {"content": []}], {"content": [1]}),
        (
            [{"tokens": ["a"], "text_offset": [0]}, {"tokens": ["b"], "text_offset": [1]}],
            {"tokens": ["a", "b"], "text_offset": [0, 1]},
        ),
        ([{"model": "x"}, {"model": "y"}, {"model": None}], {"model": "y"}),
    ],
)
def test_logprobs_null_absent_empty(backend: Backend, values: list[Any], expected: Any) -> None:
    outcome = merged(backend, *(chunk(logprobs=value) for value in values), *END)
    assert same(outcome.choice["logprobs"], expected)
    assert bool(outcome.seen & Seen.LOGPROBS) == any(
        v and any(isinstance(m, list) and m for m in v.values()) for v in values
    )


def test_logprobs_as_a_list(backend: Backend) -> None:
    chunks = [chunk(logprobs=[1]), chunk(logprobs=None), chunk(logprobs=[]), chunk(logprobs=[2])]
    assert of(backend, *chunks)["choices"][0]["logprobs"] == [1, 2]
    message = {"choices": [{"index": 0, "message": {}, "logprobs": [3]}]}
    outcome = merged(backend, *chunks, message, *END)
    assert outcome.choice["logprobs"] == [1, 2]
    assert outcome.kinds == {"message-ignored": 1}
    assert merged(backend, chunk({}), message, message, *END).choice["logprobs"] == [3, 3]  # no delta brought any


@pytest.mark.parametrize("value", ["x", 7, True])
def test_logprobs_of_another_type(backend: Backend, value: Any) -> None:
    outcome = merged(backend, chunk(logprobs={"content": [1]}), chunk(logprobs=value), *END)
    assert outcome.choice["logprobs"] == {"content": [1]}
    assert outcome.kinds == {"ignored-value": 1}


def test_logprobs_absent(backend: Backend) -> None:
    assert "logprobs" not in of(backend)["choices"][0]


# Unknown members of the top and of a choice


@pytest.mark.parametrize("choice", [False, True])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None], 1),
        ([1, 2], 2),
        (["a", "b"], "b"),
        (["a", ""], "a"),
        ([None, ""], ""),
        ([1, 0], 0),
        ([True, False], False),
        ([[1], [2, 3]], [2, 3]),
        ([[1], []], [1]),
        ([{"a": 1}, {}], {"a": 1}),
        ([[], None], []),
        ([{}, None], {}),
        ([None], None),
        ([{"a": 1, "b": [1]}, {"b": [2], "c": None}, {"c": 3, "a": None}], {"a": 1, "b": [2], "c": 3}),
        ([{"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}], {"a": {"b": {"c": 1, "d": 2}}}),
        ([{"a": 1}, "x"], "x"),
        (["x", {"a": 1}], {"a": 1}),
        ([{"a": 1}, [1]], [1]),
        ([[1], {"a": 1}], {"a": 1}),
        ([1, "1", 1.0, True], True),
    ],
)
def test_unknown_members_are_overlaid(backend: Backend, choice: bool, values: list[Any], expected: Any) -> None:
    chunks = [chunk(None, 0, extra=v) if choice else {"extra": v} for v in values]
    result = of(backend, *chunks)
    assert same((result["choices"][0] if choice else result)["extra"], expected)


@pytest.mark.parametrize(
    "name",
    "citations provider prompt_filter_results metadata moderation timings search_results usage_breakdown".split(),
)
def test_known_unknowns_of_the_top(backend: Backend, name: str) -> None:
    assert of(backend, {name: [{"a": 1}]}, {name: None})[name] == [{"a": 1}]


@pytest.mark.parametrize("name", ["content_filter_results", "native_finish_reason", "stop_reason", "seed"])
def test_known_unknowns_of_a_choice(backend: Backend, name: str) -> None:
    assert of(
        backend,
        chunk(None, 0, **{name: {"hate": {"filtered": False}}}),
        chunk(None, 0, **{name: {"hate": {"severity": "safe"}}}),
    )["choices"][0][name] == {"hate": {"filtered": False, "severity": "safe"}}


def test_token_ids_extend_and_text_joins(backend: Backend) -> None:
    result = of(
        backend,
        *(
            chunk(None, 0, token_ids=ids, text=text)
            for ids, text in (([1], "a"), ([], ""), (None, None), ([1, 2], "a"))
        ),
    )
    assert same(result["choices"][0]["token_ids"], [1, 1, 2])
    assert result["choices"][0]["text"] == "aa"


def test_token_ids_and_text_of_other_types(backend: Backend) -> None:
    result = of(backend, chunk(None, 0, token_ids=7, text=7), chunk(None, 0, token_ids=None, text=8))
    assert same(result["choices"][0]["token_ids"], 7)
    assert same(result["choices"][0]["text"], 8)
    result = of(backend, chunk(None, 0, token_ids=[1], text="a"), chunk(None, 0, token_ids=7, text=8))
    assert same([result["choices"][0][name] for name in ("token_ids", "text")], [7, 8])


@pytest.mark.parametrize("empty", [True, False])
def test_token_ids_and_text_behind_other_types(backend: Backend, empty: bool) -> None:
    values: list[tuple[Any, Any]] = [(7, 7), ([], ""), *([] if empty else [([1], "a"), ([], ""), ([2], "b")])]
    result = of(backend, *(chunk(None, 0, token_ids=ids, text=text) for ids, text in values))
    kept = [result["choices"][0][name] for name in ("token_ids", "text")]
    assert same(kept, [7, 7] if empty else [[1, 2], "ab"])


@pytest.mark.parametrize(
    "beside", [{}, {"delta": None}, {"delta": {}}, {"message": None}, {"delta": {}, "message": {}}]
)
def test_lists_beside_a_delta_or_no_message_are_not_left_out(backend: Backend, beside: dict[str, Any]) -> None:
    more = {"choices": [{"index": 0, **beside, "token_ids": [2], "text": "b", "logprobs": {"content": [2]}}]}
    outcome = merged(backend, chunk({}, token_ids=[1], text="a", logprobs={"content": [1]}), more, *END)
    assert same(
        [outcome.choice[n] for n in ("token_ids", "text", "logprobs")],
        [[1, 2], "ab", {"content": [1, 2]}],
    )
    assert outcome.kinds == {}


def test_a_message_behind_no_delta_joins_what_came_beside_none(backend: Backend) -> None:
    lone = {"choices": [{"index": 0, "token_ids": [1], "text": "a", "logprobs": {"content": [1]}}]}
    message = {"choices": [{"index": 0, "message": {}, "token_ids": [2], "text": "b", "logprobs": {"content": [2]}}]}
    outcome = merged(backend, lone, message, *END)
    assert same(
        [outcome.choice[n] for n in ("token_ids", "text", "logprobs")],
        [[1, 2], "ab", {"content": [1, 2]}],
    )
    assert outcome.kinds == {}


@pytest.mark.parametrize("count", [11, 12, 13, 14, 40])
def test_a_late_message_beside_many_names(backend: Backend, count: int) -> None:
    delta = {f"x{n}": f"v{n}" for n in range(count)}
    message = {"choices": [{"index": 0, "message": {**dict.fromkeys(delta, "late"), "new": "n"}}]}
    outcome = merged(backend, chunk(delta), message, *END)
    assert same(outcome.message, {"role": "assistant", "content": None, **delta, "new": "n"})
    assert outcome.kinds == {"message-ignored": 1}


def test_padding_is_dropped(backend: Backend) -> None:
    result = of(
        backend,
        {"p": "abc", "obfuscation": "x"},
        chunk({"content": "a", "obfuscation": "yz"}),
        {"p": 1, "obfuscation": {}},
    )
    assert same(result, of(backend, chunk({"content": "a"})))


def test_p_of_a_delta_is_no_padding(backend: Backend) -> None:
    assert message_of(backend, {"p": "a"}, {"p": "b"})["p"] == "ab"


# A message where a delta belongs


def test_a_message_is_a_piece(backend: Backend) -> None:
    pieces = [{"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]} for text in ("a", "b")]
    assert of(backend, *pieces)["choices"][0]["message"] == {"role": "assistant", "content": "ab"}


@pytest.mark.parametrize("order", [["delta", "message"], ["message", "delta"]])
def test_delta_and_message_in_one_entry(backend: Backend, order: list[str]) -> None:
    both = {"delta": {"content": "a", "refusal": None}, "message": {"content": "a", "refusal": "no", "extra": 1}}
    outcome = merged(backend, {"choices": [{name: both[name] for name in order} | {"index": 0}]}, *END)
    assert same(outcome.message, {"role": "assistant", "content": "a", "refusal": "no", "extra": 1})
    assert outcome.kinds == {"message-ignored": 1}


def test_after_a_delta_a_message_adds_what_lacked(backend: Backend) -> None:
    chunks = [
        chunk(
            {"content": "", "tool_calls": [], "reasoning": None, "audio": {}},
            logprobs={"content": [1], "refusal": None},
        ),
        {
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "late",
                        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
                        "reasoning": "r",
                        "audio": {"id": "a"},
                    },
                    "logprobs": {"content": [2], "refusal": [3]},
                    "finish_reason": "stop",
                    "native": "end",
                }
            ]
        },
    ]
    outcome = merged(backend, *chunks)
    assert same(
        outcome.choice,
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "",
                "reasoning": "r",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                "audio": {"id": "a"},
            },
            "finish_reason": "stop",
            "logprobs": {"content": [1], "refusal": [3]},
            "native": "end",
        },
    )
    assert outcome.kinds == {"message-ignored": 1, "missing-call-index": 1}
    assert outcome.complete


@pytest.mark.parametrize(
    ("deltas", "message", "expected"),
    [
        ([{"content": "a"}], {"role": "tool"}, {"role": "tool", "content": "a"}),
        ([{"content": None}], {"content": "late"}, {"role": "assistant", "content": "late"}),
        ([{"content": []}], {"content": "late"}, {"role": "assistant", "content": "late"}),
    ],
)
def test_what_no_delta_brought_a_message_brings(
    backend: Backend, deltas: list[Any], message: dict[str, Any], expected: dict[str, Any]
) -> None:
    late = {"choices": [{"index": 0, "message": message}]}
    outcome = merged(backend, *map(chunk, deltas), late, *END)
    assert same(outcome.message, expected)
    assert outcome.kinds == {}


@pytest.mark.parametrize(
    ("deltas", "message", "expected"),
    [
        ([{"role": "assistant"}], {"role": "tool"}, {"role": "assistant", "content": None}),
        ([{"refusal": "a"}] * 2, {"refusal": "late"}, {"role": "assistant", "content": None, "refusal": "aa"}),
        (
            [{"refusal": "a"}, {"refusal": "b", "x": 1}],
            {"refusal": "late"},
            {"role": "assistant", "content": None, "refusal": "ab", "x": 1},
        ),
        ([{"x": "a"}, {"y": "b"}], {"x": "c", "y": "c"}, {"role": "assistant", "content": None, "x": "a", "y": "b"}),
    ],
)
def test_what_a_delta_brought_a_message_leaves(
    backend: Backend, deltas: list[Any], message: dict[str, Any], expected: dict[str, Any]
) -> None:
    late = {"choices": [{"index": 0, "message": message}]}
    outcome = merged(backend, *map(chunk, deltas), late, *END)
    assert same(outcome.message, expected)
    assert outcome.kinds == {"message-ignored": 1}


def test_after_a_delta_a_message_brings_missing_lists(backend: Backend) -> None:
    message = {"choices": [{"index": 0, "message": {}, "token_ids": [7], "text": "x", "logprobs": {"content": [7]}}]}
    first = merged(backend, chunk({}, token_ids=[1], text="a", logprobs={"content": [1]}), message, *END)
    assert same([first.choice[n] for n in ("token_ids", "text", "logprobs")], [[1], "a", {"content": [1]}])
    assert first.kinds == {"message-ignored": 1}
    second = merged(backend, chunk({}), message, *END)
    assert same([second.choice[n] for n in ("token_ids", "text", "logprobs")], [[7], "x", {"content": [7]}])
    assert second.kinds == {}
    third = merged(backend, chunk({}, token_ids=[], text="", logprobs={"content": []}), message, *END)
    assert same([third.choice[n] for n in ("token_ids", "text", "logprobs")], [[7], "x", {"content": [7]}])
    assert third.kinds == {}


@pytest.mark.parametrize("lists", [{"token_ids": [7], "text": "x"}, {"logprobs": {"content": [7], "refusal": [7]}}])
def test_two_lists_of_a_late_message_are_told(backend: Backend, lists: dict[str, Any]) -> None:
    message = {"choices": [{"index": 0, "message": {}, **lists, "finish_reason": "length"}]}
    outcome = merged(backend, chunk({}, **lists), message, *END)
    assert outcome.choice["finish_reason"] == "length"
    assert outcome.kinds == {"message-ignored": 1}


@pytest.mark.parametrize(
    ("name", "value"),
    [("token_ids", [7]), ("text", "x"), ("logprobs", {"content": [7]}), ("logprobs", {"k": 1}), ("logprobs", [7])],
)
def test_each_list_of_a_late_message_is_told(backend: Backend, name: str, value: Any) -> None:
    message = {"choices": [{"index": 0, "message": {}, name: value}]}
    outcome = merged(backend, chunk({}, **{name: value}), message, *END)
    assert same(outcome.choice[name], value)
    assert outcome.kinds == {"message-ignored": 1}


@pytest.mark.parametrize("delta", [{"extra": "a", "images": ["b"]}, {"function_call": None}, {"function_call": 7}])
def test_other_members_set_no_flag(backend: Backend, delta: dict[str, Any]) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    assert accumulator.feed(sse(chunk(delta))) == 0


@pytest.mark.parametrize("value", [[7], {"content": [7]}, {"refusal": [7]}])
def test_logprobs_are_told_beside_the_rest(backend: Backend, value: Any) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    assert accumulator.feed(sse(chunk({"content": "a"}, logprobs=value))) == Seen.CONTENT | Seen.LOGPROBS
    assert accumulator.feed(sse(chunk({"content": "a"}, logprobs=[]))) == Seen.CONTENT


def test_a_message_that_repeats_nothing_new_is_silent(backend: Backend) -> None:
    message = {"choices": [{"index": 0, "message": {"content": "", "refusal": None, "tool_calls": []}}]}
    outcome = merged(backend, chunk({"content": "a"}), message, *END)
    assert same(outcome.message, {"role": "assistant", "content": "a", "refusal": None})
    assert outcome.diagnostics == []


def test_parts_in_a_delta_keep_a_message_s_text_out(backend: Backend) -> None:
    parts = [{"type": "text", "text": "a"}]
    outcome = merged(backend, chunk({"content": parts}), {"choices": [{"index": 0, "message": {"content": "a"}}]}, *END)
    assert outcome.message["content"] == parts
    assert outcome.kinds == {"message-ignored": 1}


def test_another_choice_s_delta_is_another_s(backend: Backend) -> None:
    outcome = merged(
        backend, chunk({"content": "a"}), {"choices": [{"index": 1, "message": {"content": "b"}}]}, "[DONE]"
    )
    assert outcome.texts == {0: "a", 1: "b"}
    assert outcome.diagnostics == []


# Members of the result


def test_members_in_the_order_of_the_reference(backend: Backend) -> None:
    message = {
        "zeta": 1,
        "annotations": [],
        "audio": {"id": "x"},
        "function_call": {"name": "f"},
        "tool_calls": [
            {
                "extra": 1,
                "function": {"extra": 1, "arguments": "", "name": "f"},
                "type": "function",
                "id": "c",
                "index": 0,
            }
        ],
        "thinking": "t",
        "reasoning_text": "t",
        "reasoning_details": [],
        "reasoning": "t",
        "reasoning_content": "t",
        "refusal": None,
        "alpha": 1,
        "content": "c",
        "role": "assistant",
    }
    result = of(
        backend,
        {
            "zeta": 1,
            "system_fingerprint": "f",
            "service_tier": None,
            "usage": {"z": 1, "prompt_tokens": 1},
            "alpha": 2,
            "choices": [{"zeta": 1, "logprobs": None, "finish_reason": None, "delta": message, "alpha": 2, "index": 0}],
            "model": "m",
            "created": 1,
            "object": "chat.completion.chunk",
            "id": "i",
        },
    )
    assert list(result) == [
        *"id object created model choices usage service_tier system_fingerprint".split(),
        *"zeta alpha".split(),
    ]
    [choice] = result["choices"]
    assert list(choice) == "index message finish_reason logprobs zeta alpha".split()
    assert list(choice["message"]) == [
        *"role content refusal reasoning_content reasoning reasoning_details reasoning_text thinking tool_calls".split(),
        *"function_call audio annotations zeta alpha".split(),
    ]
    assert list(choice["message"]["tool_calls"][0]) == ["id", "type", "function", "extra"]
    assert list(choice["message"]["tool_calls"][0]["function"]) == ["name", "arguments", "extra"]
    assert list(result["usage"]) == ["z", "prompt_tokens"]


def test_result_json_has_the_same_order(backend: Backend) -> None:
    outcome = merged(backend, {"b": 1, "model": "m", "a": {"z": 1, "y": 2}, "id": "i"}, *END)
    assert outcome.result_json == json.dumps(outcome.result, separators=(",", ":")).encode()
    assert outcome.result_json.startswith(b'{"id":"i","object":"chat.completion","model":"m","choices":[')
    assert outcome.result_json.endswith(b'],"b":1,"a":{"z":1,"y":2}}')


def test_null_for_a_member_that_was_only_null(backend: Backend) -> None:
    names = [
        *"refusal reasoning_content reasoning reasoning_details reasoning_text thinking".split(),
        *"function_call audio annotations extra".split(),
    ]
    message = message_of(backend, dict.fromkeys([*names, "tool_calls"]))
    assert list(message.items()) == [("role", "assistant"), ("content", None), *((name, None) for name in names)]


def test_error_is_no_member_of_the_result(backend: Backend) -> None:
    result = merged(
        backend, {"error": None}, chunk({}, error=None), {"error": {"message": "x"}}, chunk({}, error="x"), *END
    ).result
    assert "error" not in result
    assert "error" not in result["choices"][0]


def test_result_is_fresh(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(
        sse(
            chunk({"extra": {"a": [1]}, "images": [{"index": 0, "b": [1]}]}, seeds=[1]),
            {"more": {"a": [[1]], "b": [{"c": 1}]}},
        )
    )
    first = accumulator.result()
    first["choices"][0]["message"]["extra"]["a"].append(2)
    first["choices"][0]["message"]["images"][0]["b"].append(2)
    first["choices"][0]["seeds"].append(2)
    first["more"]["a"][0].append(2)
    first["more"]["b"][0]["c"] = 2
    second = accumulator.result()
    assert second["choices"][0]["message"]["extra"] == {"a": [1]}
    assert second["choices"][0]["message"]["images"] == [{"index": 0, "b": [1]}]
    assert second["choices"][0]["seeds"] == [1]
    assert second["more"] == {"a": [[1]], "b": [{"c": 1}]}


@pytest.mark.parametrize("n", [2, 0, True, 1.0, "1"])
def test_n_is_none_or_1(backend: Backend, n: Any) -> None:
    with pytest.raises(ValueError, match="n must be None or 1"):
        backend.ChatCompletionAccumulator(n=n)
