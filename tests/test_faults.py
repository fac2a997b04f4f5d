"""Faults that were found once, mostly by random streams: each with the smallest input that showed it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from conftest import Backend, feeds, load
from deltafold import Diagnostic, Limits, Seen

HALF = b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n'


def accumulator(backend: Backend, **limits: int):
    return backend.ChatCompletionAccumulator(Limits(**limits))


def test_an_error_inside_a_member_with_a_rule_of_its_own_is_seen(backend: Backend) -> None:
    acc = accumulator(backend, max_retained_bytes=20)
    seen = acc.feed(
        b'data: {"choices":[{"index":0,"delta":{"reasoning_details":[{"text":"longer than twenty"}]}}]}\n\n'
    )
    assert acc.error.kind == "limit-exceeded"
    assert seen & Seen.ERROR


@pytest.mark.parametrize("first", ['"\\ud83d"', '"\\ufffd"'])
def test_an_id_that_was_repaired_and_comes_again_has_not_changed(backend: Backend, first: str) -> None:
    acc = accumulator(backend)
    acc.feed(b'data: {"id":%s}\n\n' % first.encode())
    acc.feed(b'data: {"id":"\\ud83d"}\n\n')
    assert acc.id == "\ufffd"
    assert "changed-id" not in [d.kind for d in acc.diagnostics]


def test_text_since_gives_a_half_that_close_has_decided(backend: Backend) -> None:
    acc = accumulator(backend)
    acc.feed(HALF)
    text, cursor = acc.text_since()
    assert text == "a"
    assert acc.text_since(cursor)[0] == ""
    acc.close()
    text, cursor = acc.text_since(cursor)
    assert text == "\ufffd"
    assert acc.text_since(cursor)[0] == ""
    assert acc.text() == acc.text_since()[0] == "a\ufffd"
    assert acc.diagnostics == [Diagnostic("lone-surrogate", 1, len(HALF))]


def delta(backend: Backend, *deltas: bytes, **limits: int):
    """An accumulator that was fed one chunk for each delta of choice 0."""
    acc = accumulator(backend, **limits)
    for text in deltas:
        acc.feed(b'data: {"choices":[{"index":0,"delta":%s}]}\n\n' % text)
    return acc


def test_arguments_sent_as_an_object_stay_as_they_came_after_a_lone_half(backend: Backend) -> None:
    acc = delta(
        backend,
        b'{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"\\ud83d"}}]}',
        b'{"tool_calls":[{"index":0,"function":{"arguments":{"p": "\\u002f"}}}]}',
    )
    assert acc.tool_calls()[0].arguments == '\ufffd{"p":"\\u002f"}'


def test_an_error_line_counts_though_other_lines_came_before_the_first_data(backend: Backend) -> None:
    for cut in range(22):
        acc = accumulator(backend)
        body = b'}\ndata\n{"error":"y"}\n'
        acc.feed(body[:cut])
        acc.feed(body[cut:])
        acc.close()
        assert (acc.error.kind, acc.error.message, acc.error.offset) == ("upstream-error", "y", 7)


def test_deep_empty_thinking_parts_are_read_once(backend: Backend) -> None:
    depth = 60
    inner = b'[{"type":"thinking","thinking":' * depth + b'""' + b"}]" * depth
    acc = delta(backend, b'{"content":' + inner + b"}")
    assert acc.result()["choices"][0]["message"]["content"] == ""  # each level twice would be 2**60 steps


def test_a_million_data_prefixes_take_linear_time(backend: Backend) -> None:
    acc = accumulator(backend)
    acc.feed(b"data: " + b"data:" * 1_000_000 + b"{}\n\n")  # a copy for each would be 2.5 TB
    assert acc.diagnostics == [Diagnostic("repeated-data-prefix", 1, 0)]


@pytest.mark.thread_unsafe(reason="tracemalloc is everybody's")
def test_a_constant_that_will_not_fit_is_not_spelled_out(backend: Backend) -> None:
    """A member that was the same every time becomes joined text when it changes: here 10,000 times the limit."""
    tracemalloc.start()
    acc = delta(backend, *[b'{"note":"%s"}' % (b"x" * 1000)] * 2000, b'{"note":"y"}', max_retained_bytes=1500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert acc.result()["choices"][0]["message"]["note"] == "x" * 1000
    assert acc.error.kind == "limit-exceeded"
    assert peak < 500_000


@pytest.mark.thread_unsafe(reason="tracemalloc is everybody's")
def test_a_body_of_short_lines_costs_its_bytes(backend: Backend) -> None:
    """The lines are kept until it is known what the body is; a list of them would cost a hundred times as much."""
    tracemalloc.start()
    acc = accumulator(backend)
    for _ in range(20):
        acc.feed(b"a\n" * 2000)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 250_000
    acc.close()
    assert (acc.error.kind, acc.error.offset) == ("not-sse", 0)


@pytest.mark.thread_unsafe(reason="tracemalloc is everybody's")
def test_text_of_short_fragments_costs_its_bytes(backend: Backend) -> None:
    tracemalloc.start()
    acc = delta(backend, *[b'{"content":"%d"}' % n for n in range(10_000, 40_000)])
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 180_000
    assert len(acc.text()) == 150_000


@pytest.mark.thread_unsafe(reason="tracemalloc is everybody's")
@pytest.mark.parametrize("chunks", [1, 15, 40, 47, 255])
def test_a_stream_costs_under_4_kib_beside_its_text(chunks: int) -> None:
    """Of the pure implementation, for which tracemalloc tells all; scripts/leaks.py measures both."""
    made = load("pure")
    body = b'data: {"id":"chatcmpl-1","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'

    def half_fed() -> Any:
        acc = made.ChatCompletionAccumulator()
        for _ in range(chunks):
            acc.feed(body)
        acc.feed(body[:90])
        return acc

    half_fed()
    tracemalloc.start()
    alive = [half_fed() for _ in range(20)]
    each = tracemalloc.get_traced_memory()[0] / 20 - alive[0].retained_bytes
    tracemalloc.stop()
    assert each < 4096


def test_max_depth_is_bounded_by_the_stack() -> None:
    with pytest.raises(ValueError, match="max_depth must be between 1 and 128, not 129"):
        Limits(max_depth=129)


def stream(*payloads: str) -> bytes:
    return b"".join(f"data: {payload}\n\n".encode() for payload in payloads)


def entry(members: str) -> str:
    return f'{{"choices":[{{"index":0,{members}}}]}}'


def closed(backend: Backend, body: bytes) -> Any:
    accumulators = []
    for pieces in feeds(body):
        acc = backend.ChatCompletionAccumulator()
        for piece in pieces:
            acc.feed(piece)
        acc.close()
        accumulators.append(acc)
    assert all(acc.result() == accumulators[0].result() for acc in accumulators)
    assert all(acc.diagnostics == accumulators[0].diagnostics for acc in accumulators)
    return accumulators[0]


def test_several_messages_behind_a_delta_add_what_no_delta_brought(backend: Backend) -> None:
    def piece(text: str, token: int) -> str:
        logprobs = f'"logprobs":{{"content":[{token}]}}'
        return entry(f'"message":{{"content":"{text}"}},{logprobs},"token_ids":[{token}],"text":"{text}"')

    first = entry('"delta":{"role":"assistant"}')
    choice = closed(backend, stream(first, piece("a", 1), piece("b", 2))).result()["choices"][0]
    assert choice["message"]["content"] == "ab"
    assert (choice["logprobs"], choice["token_ids"], choice["text"]) == ({"content": [1, 2]}, [1, 2], "ab")

    first = entry('"delta":{"role":"assistant"},"logprobs":{"content":[9]},"token_ids":[9],"text":"z"')
    acc = closed(backend, stream(first, piece("a", 1), piece("b", 2)))
    choice = acc.result()["choices"][0]
    assert (choice["logprobs"], choice["token_ids"], choice["text"]) == ({"content": [9]}, [9], "z")
    assert [(d.kind, d.count) for d in acc.diagnostics] == [("message-ignored", 2)]


def test_lines_behind_a_comment_in_one_event(backend: Backend) -> None:
    chunk = entry('"delta":{"content":"a"},"finish_reason":"stop"')
    acc = closed(backend, f"data: : ping\ndata: {chunk}\ndata: [DONE]\n\n".encode())
    assert (acc.text(), acc.done_seen) == ("a", True)
    assert [d.kind for d in acc.diagnostics] == ["missing-blank-line"]
    acc = closed(backend, b'data: : ping\ndata: {"error":{"message":"m"}}\n\n')
    assert (acc.error.kind, acc.error.message) == ("upstream-error", "m")
    acc = closed(backend, f"data: : ping\ndata: : pong\n\ndata: {chunk}\n\n".encode())
    assert (acc.text(), acc.diagnostics) == ("a", [])


def test_a_name_behind_its_arguments(backend: Backend) -> None:
    calls = [
        '{"index":0,"id":"c","function":{"name":"get_"}}',
        '{"index":0,"function":{"arguments":"{}","name":"time"}}',
    ]
    acc = closed(backend, stream(*(entry(f'"delta":{{"tool_calls":[{call}]}}') for call in calls)))
    assert [(c.name, c.arguments) for c in acc.tool_calls()] == [("get_time", "{}")]
    assert acc.diagnostics == []


def test_the_members_of_an_error_are_no_members_of_the_result(backend: Backend) -> None:
    acc = closed(backend, stream('{"object":"error","error":{"message":"in"},"message":"out"}'))
    assert acc.error.message == "in"
    assert acc.result() == {"object": "chat.completion", "choices": []}


def test_finished_lines_of_an_error_event_without_its_blank_line(backend: Backend) -> None:
    acc = closed(backend, b"event: error\ndata: boom\n")
    assert (acc.error.kind, acc.error.message, acc.complete) == ("upstream-error", "boom", False)
    acc = closed(backend, b"event: error\ndata: boo")
    assert acc.error.kind == "truncated"


def test_reasoning_details_without_a_type(backend: Backend) -> None:
    def details(*entries: str) -> list[Any]:
        acc = closed(backend, stream(*(entry(f'"delta":{{"reasoning_details":[{e}]}}') for e in entries)))
        found: list[Any] = acc.result()["choices"][0]["message"]["reasoning_details"]
        return found

    assert details('{"type":"t","index":0,"text":"a"}', '{"index":0,"text":"b"}', '{"index":0,"text":"c"}') == [
        {"type": "t", "index": 0, "text": "abc"}
    ]
    assert details('{"index":0,"text":"a"}', '{"type":"t","index":0,"text":"b"}') == [
        {"index": 0, "text": "ab", "type": "t"}
    ]
    assert len(details('{"type":"t","index":0,"text":"a"}', '{"type":"u","index":0,"text":"b"}')) == 2


@pytest.mark.parametrize("nothing", ["null", "7"])
def test_tokens_and_text_behind_something_else(backend: Backend, nothing: str) -> None:
    """They extend and join from the first list and the first string on, whatever stood there before."""
    first = entry(f'"delta":{{}},"token_ids":{nothing},"text":{nothing}')
    more = (entry(f'"delta":{{}},"token_ids":[{i}],"text":"{i}"') for i in (1, 2, 2))
    acc = closed(backend, stream(first, *more, entry('"delta":{},"token_ids":null,"text":"","finish_reason":"stop"')))
    choice = acc.result()["choices"][0]
    assert (choice["token_ids"], choice["text"]) == ([1, 2, 2], "122")


def test_no_tokens_and_no_text(backend: Backend) -> None:
    choice = closed(backend, stream(entry('"token_ids":null,"text":null'))).result()["choices"][0]
    assert (choice["token_ids"], choice["text"]) == (None, None)
    empty = entry('"token_ids":[],"text":""')
    choice = closed(backend, stream(entry('"token_ids":null,"text":null'), empty)).result()["choices"][0]
    assert (choice["token_ids"], choice["text"]) == ([], "")


@pytest.mark.parametrize("end", ["", "\n"])
def test_comments_among_the_lines_of_a_last_event(backend: Backend, end: str) -> None:
    """Where blank lines were forgotten, the last event counts without its own if each line is whole but for comments."""
    chunk = entry('"delta":{"content":"a"},"finish_reason":"stop"')
    acc = closed(backend, f"data: {chunk}\ndata: : ping\ndata: {{}}{end}".encode())
    assert (acc.text(), acc.complete, acc.error) == ("a", True, None)
    acc = closed(backend, f'data: {chunk}\ndata: : ping\ndata: {{"error":"e"}}{end}'.encode())
    assert (acc.text(), acc.complete, acc.error.message) == ("a", True, "e")
    acc = closed(backend, f'data: : ping\ndata: {{"error":"e"}}{end}'.encode())
    assert (acc.error.kind, acc.error.message) == ("upstream-error", "e")
    assert closed(backend, f"data: : ping\ndata: : pong{end}".encode()).error.kind == "truncated"


def test_the_text_beside_an_error_that_is_a_flag(backend: Backend) -> None:
    def told(payload: str) -> tuple[str, Any, Any]:
        error = closed(backend, stream(payload)).error
        return error.message, error.code, error.body

    assert told('{"error":true,"message":"no such model","code":404}') == ("no such model", 404, True)
    assert told('{"error":1,"message":"","detail":"busy","type":"load"}') == ("busy", "load", 1)
    assert told('{"error":true,"detail":{"why":1}}') == ('{"why":1}', None, True)
    assert told('{"error":500,"message":null}') == ("500", None, 500)
    assert told('{"error":["a"],"message":"b"}') == ('["a"]', None, ["a"])
    assert told(entry('"error":true,"message":{"content":"a"}')) == ("true", None, True)
