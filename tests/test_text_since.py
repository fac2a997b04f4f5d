"""text_since: only what is new, in time proportional to it."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest

from conftest import Backend, feeds, load
from deltafold import unfold


def data(delta: dict[str, Any], index: int = 0) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": index, "delta": delta}]}).encode() + b"\n\n"


def content(text: str, index: int = 0) -> bytes:
    return data({"content": text}, index)


def test_only_what_is_new(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    assert acc.text_since(None)[0] == ""
    acc.feed(content("Hel"))
    new, cursor = acc.text_since(None)
    assert new == "Hel"
    assert acc.text_since(cursor)[0] == ""
    acc.feed(content("lo ") + content("🏞"))
    acc.feed(content("!"))
    new, cursor = acc.text_since(cursor)
    assert new == "lo 🏞!"
    assert acc.text_since(None)[0] == "Hello 🏞!"
    acc.close()
    assert acc.text_since(cursor)[0] == ""


def test_a_cursor_may_be_used_again(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    acc.feed(content("a"))
    _, first = acc.text_since()
    acc.feed(content("b"))
    _, second = acc.text_since(first)
    acc.feed(content("c"))
    assert acc.text_since(first)[0] == "bc"
    assert acc.text_since(second)[0] == "c"
    assert acc.text() == "abc"
    assert acc.text_since(first)[0] == "bc", "also after the whole text was read"


def test_each_choice_has_its_own_cursor(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    acc.feed(content("a", 0) + content("x", 1))
    (_, zero), (_, one) = acc.text_since(None, 0), acc.text_since(None, choice=1)
    acc.feed(content("bb", 0) + content("yyy", 1))
    assert acc.text_since(zero, 0)[0] == "bb"
    assert acc.text_since(one, choice=1)[0] == "yyy"
    assert acc.text_since(None, 9)[0] == ""


def test_reasoning_is_not_content(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    acc.feed(data({"reasoning_content": "hm", "refusal": "no"}))
    assert acc.text_since(None)[0] == ""


@pytest.mark.parametrize("characters", ["aé€😀", "😀😀aa", "éaaa€"])
def test_a_cursor_stands_between_characters_of_any_width(backend: Backend, characters: str) -> None:
    acc = backend.ChatCompletionAccumulator()
    cursors = [None]
    for character in characters:
        acc.feed(content(character))
        cursors.append(acc.text_since(None)[1])
    assert [acc.text_since(cursor)[0] for cursor in cursors] == [characters[at:] for at in range(len(characters) + 1)]


def test_half_a_character_is_withheld_until_it_is_whole(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    acc.feed(b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n')
    new, cursor = acc.text_since(None)
    assert new == "a"
    acc.feed(b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00b"}}]}\n\n')
    assert acc.text_since(cursor)[0] == "😀b"


def test_half_a_character_that_stays_alone(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    acc.feed(b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n')
    _, cursor = acc.text_since(None)
    acc.feed(content("b"))
    assert acc.text_since(cursor)[0] == "\ufffdb"
    assert acc.text_since(None)[0] == acc.text() == "a\ufffdb"


def test_over_content_parts(backend: Backend) -> None:
    acc, cursor, news = backend.ChatCompletionAccumulator(), None, []
    for delta in (
        "ab",
        [{"type": "text", "text": "cd"}],
        [{"type": "thinking", "thinking": "hm"}],
        [{"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "e"}],
        [{"type": "text", "text": "f"}],
    ):
        acc.feed(data({"content": delta}))
        new, cursor = acc.text_since(cursor)
        news.append(new)
    assert news == ["ab", "cd", "", "e", "f"]


def test_the_news_together_are_the_text_whatever_the_cuts(backend: Backend) -> None:
    message = {"role": "assistant", "content": "naïve 🏞️ text, haha"}
    body = b"".join(unfold({"choices": [{"index": 0, "message": message}]}, chunk_chars=2))
    for pieces in feeds(body):
        acc, cursor, news = backend.ChatCompletionAccumulator(), None, []
        for piece in pieces:
            acc.feed(piece)
            new, cursor = acc.text_since(cursor)
            news.append(new)
        assert "".join(news) == acc.text() == "naïve 🏞️ text, haha"


# Proportionality, counted


def lines(function: Any, *arguments: Any) -> int:
    """Lines of Python that a call runs through."""
    count = 0

    def trace(frame: Any, kind: str, argument: Any) -> Any:
        nonlocal count
        count += kind == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


def after(fragments: int, fresh: int) -> tuple[Any, Any]:
    """An accumulator of the pure implementation, and a cursor before its last ``fresh`` fragments."""
    acc = load("pure").ChatCompletionAccumulator()
    for _ in range(fragments):
        acc.feed(content("x" * 100))
    _, cursor = acc.text_since(None)
    for _ in range(fresh):
        acc.feed(content("y" * 100))
    return acc, cursor


def test_the_work_does_not_depend_on_what_is_old() -> None:
    little = lines(*call(*after(3, 5)))
    much = lines(*call(*after(3000, 5)))
    assert little == much > 0


def test_no_fragment_is_visited() -> None:
    assert lines(*call(*after(50, 100))) == lines(*call(*after(50, 1))) > 0


@pytest.mark.parametrize("read_before", [False, True])
def test_what_is_old_is_not_copied(read_before: bool) -> None:
    acc, cursor = after(10_000, 1)
    if read_before:
        assert len(acc.text()) == 1_000_100
    tracemalloc.start()
    try:
        new, _ = acc.text_since(cursor)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert new == "y" * 100
    assert peak < 10_000, "of a text of 1,000,100 bytes"


def call(acc: Any, cursor: Any) -> tuple[Any, Any]:
    return acc.text_since, cursor
