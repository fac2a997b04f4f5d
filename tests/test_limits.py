"""Limits: what is kept, what is skipped, and what is followed all the same."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import Backend
from deltafold import Limits, Seen
from streams import END, chunk, entry, event, merged, offset_of, payload, same, sse

HI = chunk({"content": "hi"})


@pytest.mark.parametrize(
    "name", ["max_event_bytes", "max_retained_bytes", "max_choices", "max_tool_calls", "max_depth"]
)
def test_a_limit_is_a_positive_int(name: str) -> None:
    largest = "128" if name == "max_depth" else "2\\*\\*62"
    for value in (0, -1, 2**62 + 1):
        with pytest.raises(ValueError, match=f"{name} must be between 1 and {largest}, not {value}"):
            Limits(**{name: value})
    for odd in ("1", 1.0, True, None):
        with pytest.raises(TypeError, match=f"{name} must be an int, not {type(odd).__name__}"):
            Limits(**{name: odd})  # type: ignore[arg-type]
    limits = Limits(**{name: 7})
    assert getattr(limits, name) == 7
    with pytest.raises(AttributeError):
        setattr(limits, name, 8)
    with pytest.raises(TypeError):
        Limits(7)  # type: ignore[misc]


def test_defaults() -> None:
    assert vars(Limits()) == {
        "max_event_bytes": 16 * 2**20,
        "max_retained_bytes": 64 * 2**20,
        "max_choices": 128,
        "max_tool_calls": 1024,
        "max_depth": 128,
    }


@pytest.mark.parametrize("limits", [5, {}, "x", Limits])
def test_limits_of_another_type(backend: Backend, limits: Any) -> None:
    with pytest.raises(TypeError, match="limits must be a Limits or None"):
        backend.ChatCompletionAccumulator(limits)


# One event


def test_an_event_past_the_limit_is_skipped_whole(backend: Backend) -> None:
    size = len(payload(HI))
    large = chunk({"content": "hi!"})
    chunks = [HI, large, HI, large, *END]
    outcome = merged(backend, *chunks, limits={"max_event_bytes": size + 1})
    assert outcome.texts == {0: "hihi"}
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["offset"]) == ("limit-exceeded", offset_of(chunks, 1))
    assert outcome.error["message"] == f"an event of more than max_event_bytes={size + 1}"
    assert not outcome.complete or outcome.done_seen
    assert outcome.counts["events"] == 6
    assert outcome.seen & Seen.ERROR


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        (b"data: {}\n", 3),
        (b"data: {}\ndata: \n", 4),
        (b"event: e\ndata: {}\n", 4),
        (b"id: abc\ndata: {}\n", 6),
        (b": a long comment\nretry: 1\ndata: {}\nunknown: field\n", 3),
    ],
)
def test_what_an_event_s_size_is(backend: Backend, lines: bytes, size: int) -> None:
    for limit, passes in ((size, False), (size - 1, True)):
        outcome = merged(backend, lines + b"\n", limits={"max_event_bytes": limit})
        assert outcome.error is not None
        assert (outcome.error["kind"] == "limit-exceeded") == passes


# Choices and calls


def test_choices_past_the_limit_are_not_kept(backend: Backend) -> None:
    chunks = [chunk({"content": str(i)}, i) for i in (5, 9, 7, 5, 9, 7)]
    outcome = merged(
        backend,
        *chunks,
        chunk(index=7, finish_reason="stop"),
        chunk(index=5, finish_reason="stop"),
        limits={"max_choices": 2},
    )
    assert outcome.texts == {5: "55", 9: "99"}
    assert outcome.finish_reasons == {5: "stop", 9: None}
    assert outcome.error is not None
    assert outcome.error["message"] == "more than max_choices=2 in one stream"
    assert outcome.error["offset"] == offset_of(chunks, 2)


def test_usage_of_a_choice_past_the_limit_is_followed(backend: Backend) -> None:
    chunks = [chunk(index=i, usage={"total_tokens": i, "cost": 9}, finish_reason="stop") for i in range(3)]
    outcome = merged(backend, *chunks, limits={"max_choices": 1})
    assert same(outcome.usage, {"total_tokens": 2, "cost": 9})
    assert outcome.usage_source == "choice"
    late = merged(
        backend,
        chunk({"content": "x"}),
        chunk(index=5, usage={"total_tokens": 7, "cost": 9}),
        limits={"max_choices": 1},
    )
    assert same(late.usage, {"total_tokens": 7})
    assert late.seen & Seen.USAGE


def test_usage_of_two_choices_past_the_limit_is_told(backend: Backend) -> None:
    both = {"choices": [entry(index=i, usage={"total_tokens": i}) for i in (5, 6)]}
    outcome = merged(backend, chunk({"content": "x"}), both, limits={"max_choices": 1})
    assert same(outcome.usage, {"total_tokens": 6})
    assert outcome.seen & Seen.USAGE


def test_a_model_that_does_not_fit_is_no_changed_id(backend: Backend) -> None:
    outcome = merged(backend, {"id": "a", "model": "b"}, {"model": "c" * 99}, limits={"max_retained_bytes": 20})
    assert (outcome.id, outcome.model) == ("a", "b")
    assert outcome.error is not None
    assert outcome.error["kind"] == "limit-exceeded"
    assert outcome.diagnostics == []


def test_remembered_indexes_are_bounded(backend: Backend) -> None:
    deltas = [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "0"}}]
    deltas += [{"index": i, "id": "a", "function": {"arguments": str(i)}} for i in range(1, 5)]
    deltas += [{"index": 4, "id": "b", "function": {"name": "g", "arguments": "x"}}]
    deltas += [{"index": 4, "function": {"arguments": "y"}}]
    outcome = merged(backend, *(chunk({"tool_calls": [d]}) for d in deltas), *END, limits={"max_tool_calls": 2})
    # index 4 was never remembered: its last fragment, without id and name, is the newest call's
    assert [(c[0], c[3]) for c in outcome.calls[0]] == [("a", "01234"), ("b", "xy")]


@pytest.mark.parametrize("known", [True, False])
def test_the_last_index_that_is_remembered(backend: Backend, known: bool) -> None:
    again = {"id": "a"} if known else {}  # by its id, and as the newest call
    deltas = [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "0"}}]
    deltas += [{"index": i, **again, "function": {"arguments": str(i)}} for i in (1, 2)]
    deltas += [{"index": 3, "id": "b", "function": {"name": "g", "arguments": "x"}}]
    deltas += [{"index": i, "function": {"arguments": str(i)}} for i in (0, 1, 2, 3)]
    outcome = merged(backend, *(chunk({"tool_calls": [d]}) for d in deltas), *END, limits={"max_tool_calls": 2})
    assert [(c[0], c[3]) for c in outcome.calls[0]] == [("a", "01201"), ("b", "x23")]


# Retained bytes


@pytest.mark.parametrize(
    ("chunks", "nbytes"),
    [
        ([], 0),
        ([chunk({"content": "aé\U0001f600"})], 7),
        ([chunk({"content": ""}), chunk({"content": None})], 0),
        ([chunk({"content": "ab"}), chunk({"content": "cd"})], 4),
        ([chunk({"refusal": "abc"})], 3),
        ([chunk({"tool_calls": [{"index": 0, "function": {"arguments": "abc"}}]})], 3),
        ([{"id": "x"}], 2 + 3),
        ([{"id": "x"}, {"id": "yy"}], 2 + 3),
        ([{"model": "x"}, {"model": "yyy"}], 5 + 5),
        ([{"created": 17}], 7 + 2),
        ([{"created": 0}, {"created": 17}], 7 + 2),
        ([{"x": None}], 1 + 4),
        ([{"x": True, "y": False}], 1 + 4 + 1 + 5),
        ([{"x": [1, 2, "é"]}], 1 + len('[1,2,"é"]'.encode()) - len("é".encode()) + len("\\u00e9")),
        ([{"x": 1234}, {"x": 5}], 1 + 1),
        ([{"x": {"a": 12, "b": [1]}}, {"x": 5}], 1 + 1),
        ([chunk({"x": {"a": "bc"}}), chunk({"x": 5})], 1 + 1),
        ([chunk({"x": [1, {"index": 0, "t": "ab"}, {"u": 1}]}), chunk({"x": 5})], 1 + 1),
        ([chunk({"x": "abc"}), chunk({"x": 5})], 1 + 1),
        ([chunk({"x": 5}), chunk({"x": "abc"})], 1 + 3),
        ([chunk({"x": {"a": "bc"}})], 1 + 2 + 1 + 2),
        ([chunk({"x": [1, {"index": 0, "t": "ab"}]})], 1 + 1 + 2 + 5 + 1 + 1 + 2),
        ([chunk({"x": "ab"}), chunk({"x": "ab"})], 1 + 2),
        ([chunk({"x": "ab"}), chunk({"x": "ab"}), chunk({"x": "c"})], 1 + 5),
        ([{"usage": {"a": 12}}], 5 + 2 + 1 + 2),
        ([{"usage": None}], 5 + 4),
        ([{"usage": None}, {"usage": {"a": 12}}], 5 + 2 + 1 + 2),
        ([{"usage": None}] * 3, 5 + 4),
        ([{"usage": {"a": 12}}, {"usage": None}], 5 + 2 + 1 + 2),
        ([{"id": "x" * 40, "usage": None}, {"usage": {"a": 12}}], 2 + 42 + 5 + 2 + 1 + 2),
        ([chunk(usage={"a": 12})], 5 + 2 + 1 + 2),
        ([{"x_groq": {"usage": {"a": 12}}}], 6 + 2 + 5 + 2 + 1 + 2),
        ([chunk(logprobs={"content": [1, 2]})], 7 + 1 + 1),
        ([chunk(logprobs={"content": None}), chunk(logprobs={"content": [1, 2]})], 7 + 1 + 1),
        ([chunk({}, text="ab", token_ids=[1, 22])], 4 + 2 + 9 + 1 + 2),
        ([chunk({}, text=1234, token_ids=5678), chunk({}, text="ab", token_ids=[1, 22])], 4 + 2 + 9 + 1 + 2),
        ([chunk({}, text="", token_ids=[])], 4 + 9),
        ([chunk({}, text=None, token_ids=None), chunk({}, text="", token_ids=[])], 4 + 9),
        ([chunk({"reasoning": "ab"})], 9 + 2),
        ([chunk({"tool_calls": [{"index": 0, "id": "a", "type": "t", "function": {"name": "f"}}]})], 2 + 3 + 4 + 3 + 1),
        ([chunk(finish_reason="length")], 13 + 8),
        ([chunk(finish_reason="tool_calls"), chunk(finish_reason="length")], 13 + 8),
        ([chunk({"role": "assistant"})], 4 + 11),
        ([{"object": "chat.completion.chunk", "obfuscation": "x" * 99, "p": "x"}], 0),
        (['{ "x" : { } }'], 1 + 2),
        (['{"x":[ 1 , 1.50 ]}'], 1 + 8),
        (['{"x":[1]}', '{"x":[ 1 , 2 ]}'], 1 + 5),
    ],
)
def test_retained_bytes(backend: Backend, chunks: list[Any], nbytes: int) -> None:
    assert merged(backend, *chunks).retained_bytes == nbytes


def test_the_first_value_past_the_limit_is_not_kept_at_all(backend: Backend) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 4, "odd": 5},
        "cost": 1,
    }
    chunks = [
        chunk({"content": "12345"}),
        chunk({"content": "678901"}),
        chunk(
            {"content": "x", "refusal": "x", "reasoning": "x", "tool_calls": [{"index": 0, "id": "a"}], "extra": 1},
            seed=1,
            logprobs={"content": [1]},
        ),
        {"id": "x", "model": "m", "created": 1, "more": 1, "usage": {"prompt_tokens": 3}},
        {"usage": usage},
        chunk({"content": "x"}, 1),
        chunk({"content": None}, 0, finish_reason="length"),
        chunk(None, 1, finish_reason="stop"),
        "[DONE]",
    ]
    outcome = merged(backend, *chunks, limits={"max_retained_bytes": 10})
    assert same(
        outcome.result,
        {
            "object": "chat.completion",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "12345"}, "finish_reason": "length"},
                {"index": 1, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"},
            ],
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 11,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
        },
    )
    assert outcome.retained_bytes == 5
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["offset"]) == ("limit-exceeded", offset_of(chunks, 1))
    assert outcome.error["message"] == "more than max_retained_bytes=10 to keep"
    assert outcome.complete


def test_past_the_limit_nothing_takes_another_shape(backend: Backend) -> None:
    chunks = [
        chunk({"content": "12345", "x": "a"}),
        chunk({"content": "678901"}),
        chunk({"content": [{"type": "text", "text": ""}], "x": []}),
        chunk({"content": [{"type": "text", "text": "x"}], "x": {"y": 1}}),
        chunk(finish_reason="stop"),
    ]
    outcome = merged(backend, *chunks, limits={"max_retained_bytes": 10})
    assert same(outcome.message, {"role": "assistant", "content": "12345", "x": "a"})
    assert outcome.kinds == {}


@pytest.mark.parametrize(("length", "followed"), [(64, True), (65, False)])
def test_finish_reasons_past_the_limit(backend: Backend, length: int, followed: bool) -> None:
    reason = "é" * (length // 2) + "x" * (length % 2)
    outcome = merged(backend, chunk({"content": "xx"}), chunk(finish_reason=reason), limits={"max_retained_bytes": 1})
    assert outcome.choice["finish_reason"] == (reason if followed else None)
    assert outcome.complete == followed


@pytest.mark.parametrize(
    "over",
    [
        {"content": "123456"},
        {"content": [{"type": "text", "text": "123456"}]},
        {"refusal": "123456"},
        {"reasoning": "123456"},
        {"reasoning_details": [{"text": "123456"}]},
        {"audio": {"data": "123456"}},
        {"images": ["123456"]},
        {"tool_calls": [{"index": 0, "id": "123456"}]},
        {"function_call": {"name": "123456"}},
        {"extra": 123456},
        {"role": "123456"},
    ],
)
def test_the_piece_that_passes_a_limit_says_so(backend: Backend, over: dict[str, Any]) -> None:
    accumulator = backend.ChatCompletionAccumulator(Limits(max_retained_bytes=5))
    assert not accumulator.feed(event(chunk({"content": "a"}))) & Seen.ERROR
    assert accumulator.feed(event(chunk(over))) == Seen.ERROR
    assert not accumulator.feed(event(chunk({"content": "a"})))
    assert accumulator.text() == "a"
    assert accumulator.error.kind == "limit-exceeded"
    assert list(accumulator.result()["choices"][0]["message"]) == ["role", "content"]


def test_a_list_of_logprobs_that_does_not_fit(backend: Backend) -> None:
    outcome = merged(backend, chunk(logprobs={"content": [1]}), *END, limits={"max_retained_bytes": 5})
    assert outcome.choice["logprobs"] == {}
    assert not outcome.seen & Seen.LOGPROBS


def test_past_the_limit_no_message_is_told(backend: Backend) -> None:
    members = {"text": "x", "token_ids": [1], "logprobs": {"content": [1]}}
    late = {"choices": [{"index": 0, "message": {"refusal": "x", "extra": "x"}, **members}]}
    chunks = [chunk({"content": "123456"}), chunk({"refusal": "x", "extra": "x"}, **members), late, *END]
    outcome = merged(backend, *chunks, limits={"max_retained_bytes": 5})
    assert same(
        outcome.choice, {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}
    )
    assert outcome.kinds == {}


def test_zeros_past_the_limit_replace_no_counts(backend: Backend) -> None:
    outcome = merged(
        backend,
        {"usage": {"total_tokens": 5}, "x_groq": {"usage": {"total_tokens": 4}}},
        chunk({"content": "x" * 99}),
        {"usage": {"total_tokens": 0, "prompt_tokens": 0}},
        {"usage": {"completion_tokens": 7, "total_tokens": "x", "prompt_tokens": None}},
        limits={"max_retained_bytes": 60},
    )
    assert same(outcome.usage, {"total_tokens": 5, "prompt_tokens": 0, "completion_tokens": 7})


def test_a_placeholder_stays_where_the_arguments_do_not_fit(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator(Limits(max_retained_bytes=6))
    flags = [
        accumulator.feed(event(chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": text}}]})))
        for text in ("{}", '{"a":1}', "x")
    ]
    assert flags == [Seen.TOOL_CALL, Seen.ERROR, 0]
    assert accumulator.tool_calls()[0].arguments == "{}"
    assert accumulator.retained_bytes == 3
    assert accumulator.diagnostics == []


def test_arguments_that_do_not_fit_bring_no_call(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator(Limits(max_retained_bytes=6))
    flags = [
        accumulator.feed(event(chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})))
        for text in ('{"a"', ':"long"}')
    ]
    assert flags == [Seen.TOOL_CALL, Seen.ERROR]
    assert accumulator.tool_calls()[0].arguments == '{"a"'


def test_all_of_openai_s_usage_is_followed(backend: Backend) -> None:
    prompt = dict.fromkeys(["cached_tokens", "cache_write_tokens", "audio_tokens", "image_tokens", "text_tokens"], 3)
    names = [
        "reasoning_tokens",
        "audio_tokens",
        "text_tokens",
        "accepted_prediction_tokens",
        "rejected_prediction_tokens",
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 2.5, "total_tokens": -3}
    usage |= {"prompt_tokens_details": prompt, "completion_tokens_details": dict.fromkeys(names, 4)}
    over = chunk({"content": "x" * 9})
    outcome = merged(backend, over, {"usage": {"prompt_tokens_details": 5, **usage}}, limits={"max_retained_bytes": 5})
    assert same(outcome.usage, usage)
    more = {name: value | {"more": 1} if isinstance(value, dict) else value for name, value in usage.items()} | {
        "cost": 1
    }
    assert same(merged(backend, over, {"usage": more}, limits={"max_retained_bytes": 5}).usage, usage)
    for odd in (10**64, "9", None, True, [9]):
        outcome = merged(backend, over, {"usage": {"total_tokens": odd}}, limits={"max_retained_bytes": 5})
        assert outcome.usage is None
        assert not outcome.seen & Seen.USAGE
    assert merged(backend, over, {"usage": {"total_tokens": 10**64 - 1}}, limits={"max_retained_bytes": 5}).usage == {
        "total_tokens": 10**64 - 1
    }


def test_words_for_numbers_past_the_limit(backend: Backend) -> None:
    usage = '{"usage":{"prompt_tokens":Infinity,"completion_tokens":-Infinity,"total_tokens":NaN}}'
    outcome = merged(backend, chunk({"content": "xx"}), usage, *END, limits={"max_retained_bytes": 1})
    assert repr(outcome.usage) == "{'prompt_tokens': inf, 'completion_tokens': -inf, 'total_tokens': nan}"


def test_a_replaced_value_frees_its_length(backend: Backend) -> None:
    outcome = merged(backend, {"x": "a" * 80}, {"x": 1}, {"y": "b" * 80}, *END, limits={"max_retained_bytes": 110})
    assert outcome.error is None
    assert same([outcome.result["x"], outcome.result["y"]], [1, "b" * 80])


@pytest.mark.parametrize("large", ["x" * 50, ["x" * 50], 10**50, [[]] * 50])
def test_what_does_not_fit_leaves_what_was_there(backend: Backend, large: Any) -> None:
    outcome = merged(
        backend,
        chunk({"extra": "ab"}),
        chunk({"extra": "c"}),
        chunk({"extra": "x" * 50}),
        limits={"max_retained_bytes": 20},
    )
    assert (outcome.message["extra"], outcome.retained_bytes) == ("abc", 5 + 3)
    outcome = merged(backend, {"extra": 12345}, {"extra": large}, limits={"max_retained_bytes": 20})
    assert outcome.error is not None
    assert (outcome.result["extra"], outcome.retained_bytes) == (12345, 5 + 5)


def test_a_string_that_does_not_fit_in_the_place_of_a_number(backend: Backend) -> None:
    outcome = merged(backend, chunk({"extra": 12345}), chunk({"extra": "x" * 50}), limits={"max_retained_bytes": 20})
    assert (outcome.message["extra"], outcome.retained_bytes) == (12345, 10)
    assert outcome.kinds == {}


def test_a_waiting_half_is_booked_as_a_replacement_character(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    booked = []
    for text in ("a", "\ud83d", "\ude00"):
        accumulator.feed_chunk(chunk({"content": text}))
        booked.append(accumulator.retained_bytes)
    assert booked == [1, 4, 5]


def test_memory_does_not_follow_an_index(backend: Backend) -> None:
    outcome = merged(
        backend, chunk({"tool_calls": [{"index": 2**62, "id": "a"}], "images": [{"index": 2**62}]}, 2**62), "[DONE]"
    )
    assert outcome.choice["index"] == 2**62
    assert outcome.message["images"] == [{"index": 2**62}]


def test_comments_and_unknown_fields_are_not_kept(backend: Backend) -> None:
    data = b": " + b"x" * 5000 + b"\n" + event(HI) + b"foo: " + b"x" * 5000 + b"\n" + sse(HI, *END)
    outcome = merged(backend, data, limits={"max_event_bytes": 100, "max_retained_bytes": 100})
    assert (outcome.texts, outcome.error) == ({0: "hihi"}, None)
