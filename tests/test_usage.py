"""Usage: which numbers stay, where they came from, and that none is made up."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import Backend
from deltafold import Seen
from streams import END, Outcome, chunk, entry, merged, offset_of, same

COUNTS = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
ZEROS = dict.fromkeys(COUNTS, 0)


def reported(backend: Backend, *values: Any) -> Outcome:
    return merged(backend, *({"choices": [], "usage": value} for value in values), *END)


@pytest.mark.parametrize(
    ("values", "expected", "source"),
    [
        ([COUNTS], COUNTS, "reported"),
        ([None, COUNTS], COUNTS, "reported"),
        ([COUNTS, None], COUNTS, "reported"),
        ([COUNTS, {}], COUNTS, "reported"),
        (
            [{"prompt_tokens": 9}, {"completion_tokens": 1}, {"completion_tokens": 2}],
            {"prompt_tokens": 9, "completion_tokens": 2},
            "reported",
        ),
        ([{"prompt_tokens": 9}, {"prompt_tokens": None}], {"prompt_tokens": 9}, "reported"),
        ([{"prompt_tokens": None}], {"prompt_tokens": None}, "reported"),
        ([ZEROS], ZEROS, "reported"),
        ([ZEROS, ZEROS], ZEROS, "reported"),
        ([ZEROS, COUNTS], COUNTS, "reported"),
        ([{}], {}, "none"),
        ([None, {}, None], {}, "none"),
        ([None], None, "none"),
        (
            [{"prompt_tokens": 3, "completion_tokens": 2}, {"prompt_tokens": 3, "completion_tokens": 0}],
            {"prompt_tokens": 3, "completion_tokens": 0},
            "reported",
        ),
        (
            [{"prompt_tokens_details": None}, {"prompt_tokens_details": {"cached_tokens": 0}}],
            {"prompt_tokens_details": {"cached_tokens": 0}},
            "reported",
        ),
        (
            [{"d": {"a": 1, "b": {"c": 2}}}, {"d": {"a": None, "b": {"d": 3}}}],
            {"d": {"a": 1, "b": {"c": 2, "d": 3}}},
            "reported",
        ),
        (
            [{"cost": 0.25, "prompt_cache_hit_tokens": 2}, {"cost": 0.5}],
            {"cost": 0.5, "prompt_cache_hit_tokens": 2},
            "reported",
        ),
        ([{"total_tokens": "13"}], {"total_tokens": "13"}, "reported"),
        ([{"total_tokens": 13.0}], {"total_tokens": 13.0}, "reported"),
        ([{"total_tokens": 10**30}], {"total_tokens": 10**30}, "reported"),
        ([{"tiers": [1]}, {"tiers": [2]}, {"tiers": []}], {"tiers": [2]}, "reported"),
    ],
)
def test_leaf_by_leaf_the_last_that_says_something(
    backend: Backend, values: list[Any], expected: Any, source: str
) -> None:
    outcome = reported(backend, *values)
    assert same(outcome.usage, expected)
    assert same(outcome.result["usage"], expected)
    assert outcome.usage_source == source
    assert outcome.diagnostics == []
    assert bool(outcome.seen & Seen.USAGE) == any(v and any(m is not None for m in v.values()) for v in values)


def test_without_usage_there_is_none(backend: Backend) -> None:
    outcome = merged(backend, chunk({"content": "x"}), *END)
    assert "usage" not in outcome.result
    assert (outcome.usage, outcome.usage_source) == (None, "none")


@pytest.mark.parametrize(
    "zeros",
    [
        ZEROS,
        {"prompt_tokens": 0},
        {"prompt_tokens": 0.0, "total_tokens": -0.0},
        {"total_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}},
        {"total_tokens": 0, "prompt_tokens_details": None},
    ],
)
def test_zeros_replace_no_counts(backend: Backend, zeros: dict[str, Any]) -> None:
    counts = COUNTS | {"prompt_tokens_details": {"cached_tokens": 2}}
    chunks = [{"usage": counts}, {"usage": zeros}, {"usage": zeros}, *END]
    outcome = merged(backend, *chunks)
    assert same(outcome.usage, counts)
    assert outcome.diagnostics == [("zero-usage", 2, offset_of(chunks, 1))]


def test_zeros_add_what_was_not_there(backend: Backend) -> None:
    outcome = reported(backend, {"prompt_tokens": 9}, {"prompt_tokens": 0, "completion_tokens": 0, "note": "x"})
    assert same(outcome.usage, {"prompt_tokens": 9, "completion_tokens": 0, "note": "x"})
    assert outcome.kinds == {"zero-usage": 1}


def test_zeros_replace_no_counts_of_another_shape(backend: Backend) -> None:
    counts = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2}}
    outcome = reported(backend, counts, {"prompt_tokens": {"text": 0}, "prompt_tokens_details": 0})
    assert same(outcome.usage, counts)
    assert outcome.kinds == {"zero-usage": 1}


def test_zeros_replace_no_counts_at_any_depth(backend: Backend) -> None:
    outcome = reported(backend, {"d": {"a": 1, "e": {"b": 2}}}, {"d": {"a": 0, "c": 0, "e": {"b": 0, "f": 0}}})
    assert same(outcome.usage, {"d": {"a": 1, "c": 0, "e": {"b": 2, "f": 0}}})
    assert outcome.kinds == {"zero-usage": 1}


def test_zeros_beside_nothing_to_protect_are_silent(backend: Backend) -> None:
    outcome = reported(backend, {"prompt_tokens": 9}, {"total_tokens": 0, "prompt_tokens": {}})
    assert same(outcome.usage, {"prompt_tokens": 9, "total_tokens": 0})
    assert outcome.kinds == {}


def test_a_count_at_any_depth_means_that_zeros_are_meant(backend: Backend) -> None:
    outcome = reported(backend, {"total_tokens": 5}, {"total_tokens": 0, "d": {"e": {"a": 3}}})
    assert same(outcome.usage, {"total_tokens": 0, "d": {"e": {"a": 3}}})
    assert outcome.kinds == {}


def test_an_object_without_numbers_is_not_zero(backend: Backend) -> None:
    outcome = reported(backend, {"prompt_tokens": 9, "total_tokens": 9}, {"prompt_tokens": {"note": "x"}})
    assert same(outcome.usage, {"prompt_tokens": {"note": "x"}, "total_tokens": 9})
    assert outcome.kinds == {}


def test_a_number_in_the_place_of_details(backend: Backend) -> None:
    outcome = reported(backend, {"prompt_tokens_details": {"cached_tokens": 1}}, {"prompt_tokens_details": 5})
    assert same(outcome.usage, {"prompt_tokens_details": 5})
    assert outcome.kinds == {}


@pytest.mark.parametrize("value", [7, "x", [COUNTS], True])
def test_usage_that_is_no_object(backend: Backend, value: Any) -> None:
    outcome = reported(backend, COUNTS, value)
    assert same(outcome.usage, COUNTS)
    assert outcome.kinds == {"ignored-value": 1}


# Other places


def test_usage_of_choices_overlays_in_the_order_of_arrival(backend: Backend) -> None:
    outcome = merged(
        backend,
        {
            "choices": [
                entry(index=1, usage={"prompt_tokens": 1, "a": 1}),
                entry(index=0, usage={"prompt_tokens": 2, "b": 1}),
            ]
        },
        chunk(index=1, usage={"prompt_tokens": 3}),
        "[DONE]",
    )
    assert same(outcome.usage, {"prompt_tokens": 3, "a": 1, "b": 1})
    assert same(outcome.result["usage"], outcome.usage)
    assert outcome.usage_source == "choice"
    assert [c["usage"] for c in outcome.result["choices"]] == [
        {"prompt_tokens": 2, "b": 1},
        {"prompt_tokens": 3, "a": 1},
    ]
    assert outcome.seen & Seen.USAGE


def test_usage_of_x_groq(backend: Backend) -> None:
    outcome = merged(backend, {"x_groq": {"id": "r"}}, {"x_groq": {"usage": COUNTS | {"queue_time": 0.1}}}, *END)
    assert same(outcome.usage, COUNTS | {"queue_time": 0.1})
    assert same(outcome.result["usage"], outcome.usage)
    assert same(outcome.result["x_groq"], {"id": "r", "usage": COUNTS | {"queue_time": 0.1}})
    assert outcome.usage_source == "x_groq"
    assert outcome.seen & Seen.USAGE


def test_usage_of_x_groq_beside_escapes(backend: Backend) -> None:
    outcome = merged(backend, '{"x_groq":{"usage":{"total_tokens":13,"queue_time":1.50,"note":"\\u0041"}}}', *END)
    assert same(outcome.usage, {"total_tokens": 13, "queue_time": 1.5, "note": "A"})
    assert outcome.usage_source == "x_groq"


@pytest.mark.parametrize(
    "extra",
    [
        {"timings": COUNTS},
        {"timings": {"usage": COUNTS}},
        {"x_groq": [COUNTS]},
        {"x_groq": "usage"},
        {"x_groq": {"usage": [9]}},
        chunk({}, timings=COUNTS),
        chunk({}, usage=[9]),
    ],
)
def test_what_is_no_usage(backend: Backend, extra: dict[str, Any]) -> None:
    outcome = merged(backend, extra, *END)
    assert "usage" not in outcome.result
    assert outcome.usage_source == "none"
    assert not outcome.seen & Seen.USAGE
    assert outcome.kinds == {}


TOP, CHOICE, GROQ = ({"total_tokens": number} for number in (1, 2, 3))
ZERO = {"total_tokens": 0}


@pytest.mark.parametrize(
    ("top", "choice", "groq", "expected", "source"),
    [
        (TOP, CHOICE, GROQ, TOP, "reported"),
        (ZERO, CHOICE, GROQ, CHOICE, "choice"),
        (ZERO, ZERO, GROQ, GROQ, "x_groq"),
        (ZERO, ZERO, ZERO, ZERO, "reported"),
        (None, CHOICE, GROQ, CHOICE, "choice"),
        (None, None, GROQ, GROQ, "x_groq"),
        (None, ZERO, GROQ, GROQ, "x_groq"),
        (None, ZERO, None, ZERO, "choice"),
        ({}, CHOICE, None, CHOICE, "choice"),
        ({}, {}, {}, {}, "none"),
        (None, {}, {}, None, "none"),
        (None, None, None, None, "none"),
    ],
)
@pytest.mark.parametrize("top_last", [False, True])
def test_which_place_counts(
    backend: Backend, top: Any, choice: Any, groq: Any, expected: Any, source: str, top_last: bool
) -> None:
    others = [chunk({}, usage=choice), {"x_groq": {"usage": groq}}]
    chunks = [*others, {"usage": top}] if top_last else [{"usage": top}, *others]
    outcome = merged(backend, *chunks, *END)
    assert same(outcome.usage, expected)
    assert same(outcome.result["usage"], expected)
    assert outcome.usage_source == source
    assert same(outcome.choice["usage"], choice)
    assert same(outcome.result["x_groq"]["usage"], groq)
    assert outcome.diagnostics == []


def test_zeros_of_a_choice_replace_no_counts(backend: Backend) -> None:
    outcome = merged(backend, chunk({}, usage=COUNTS), chunk({}, usage=ZEROS), *END)
    assert same(outcome.usage, COUNTS)
    assert same(outcome.choice["usage"], ZEROS)  # the original, as an unknown member of a choice
    assert outcome.kinds == {"zero-usage": 1}


def test_usage_is_decided_when_read(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    sources = []
    for value in ({"x_groq": {"usage": GROQ}}, chunk({}, usage=CHOICE), {"usage": TOP}):
        accumulator.feed_chunk(value)
        sources.append((accumulator.usage_source, accumulator.usage))
    assert sources == [("x_groq", GROQ), ("choice", CHOICE), ("reported", TOP)]
    accumulator.usage["total_tokens"] = 99
    assert accumulator.usage == TOP


def test_a_cut_stream_has_no_usage(backend: Backend) -> None:
    outcome = merged(backend, b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: {"usage":{"total_tok')
    assert (outcome.usage, outcome.usage_source) == (None, "none")
    assert "usage" not in outcome.result


def test_usage_is_never_computed(backend: Backend) -> None:
    outcome = reported(backend, {"prompt_tokens": 9, "completion_tokens": 4}, {"total_tokens": 99})
    assert same(outcome.usage, {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 99})
