"""Faults that were found once, mostly by random streams: each with the smallest input that showed it."""

from __future__ import annotations

import pytest

from conftest import Backend
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
