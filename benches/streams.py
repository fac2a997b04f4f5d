"""Streams of the kinds that servers send, made from a seed, with what a right merge gives of each.

The answers come from the generator itself, so that no contestant, deltafold included, marks its own work.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["READS", "STREAMS", "Answer", "ChoiceAnswer", "Stream", "cut"]

READS = {"event": 0, "1400": 1400, "16384": 16384, "1": 1}  # bytes of one read; 0 is one event a read
WORDS = (
    "the a of to and in is that it for on with as was by this be are from or an at which not have one all can more when time "
    "delta river stream merge bytes answer token model water carries folded grain shore because therefore however"
).split()
WIDE = "поток ответ дельта река 世界 変化 流れ 河口 🌊 café naïve".split()
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass
class ChoiceAnswer:
    content: str | None = None
    reasoning: str | None = None
    calls: list[tuple[str, str, str]] = field(default_factory=list)  # id, name, arguments
    finish_reason: str | None = None
    logprobs: int = 0  # tokens


@dataclass
class Answer:
    choices: dict[int, ChoiceAnswer]
    usage: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Stream:
    name: str
    matches_shape: bool  # consecutive chunks are equal but for their text
    events: list[bytes]
    answer: Answer

    @property
    def data(self) -> bytes:
        return b"".join(self.events)

    @property
    def chunks(self) -> int:
        return len(self.events) - 1  # without [DONE]


def cut(stream: Stream, read: str) -> list[bytes]:
    """The stream's bytes as reads of that size would bring them."""
    size = READS[read]
    if not size:
        return stream.events
    data = stream.data
    return [data[i : i + size] for i in range(0, len(data), size)]


class Maker:
    """Collects the events of one stream; the envelope is the members that every chunk repeats."""

    def __init__(self, seed: str, envelope: dict[str, Any], spaced: bool = False, ascii: bool = False) -> None:
        self.dice = random.Random(seed)
        self.envelope = envelope
        self.events: list[bytes] = []
        self._separators = (", ", ": ") if spaced else (",", ":")
        self._ascii = ascii

    def add(self, choices: list[dict[str, Any]], **more: Any) -> None:
        chunk = {**self.envelope, "choices": choices, **more}
        text = json.dumps(chunk, separators=self._separators, ensure_ascii=self._ascii)
        self.events.append(f"data: {text}\n\n".encode())

    def words(self, count: int, words: list[str] = WORDS) -> Iterator[str]:
        for at in range(count):
            word = self.dice.choice(words)
            yield (" " if at else "") + word + ("." if self.dice.random() < 0.06 else "")

    def pad(self, text: str) -> str:
        return "".join(self.dice.choice(LETTERS) for _ in range(max(1, 16 - len(text))))

    def stream(self, name: str, matches_shape: bool, answer: Answer) -> Stream:
        return Stream(name, matches_shape, [*self.events, b"data: [DONE]\n\n"], answer)


OPENAI = {
    "id": "chatcmpl-BfA3kQx7ZtR9mLwY2sVcJ8uNdPeG",
    "object": "chat.completion.chunk",
    "created": 1767225600,
    "model": "gpt-4o-mini-2024-07-18",
    "service_tier": "default",
    "system_fingerprint": "fp_5e1a2b3c4d",
}
VLLM = {
    "id": "chatcmpl-3f0c9d6b7a5e4f2c8b1d0a9e8f7c6b5a",
    "object": "chat.completion.chunk",
    "created": 1767225600,
    "model": "served/model-8b-instruct",
}
NAMES = ["prompt_tokens", "completion_tokens", "total_tokens"]


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {**dict(zip(NAMES, (prompt, completion, prompt + completion), strict=True))}


def choice(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, **more}


def chat(name: str, count: int, padded: bool, words: list[str] = WORDS, join: int = 1) -> Stream:
    make, said = Maker(name, OPENAI), []

    def add(delta: dict[str, Any], finish: str | None = None, text: str = "") -> None:
        make.add([choice(delta, finish)], usage=None, **({"obfuscation": make.pad(text)} if padded else {}))

    add({"role": "assistant", "content": "", "refusal": None})
    for _ in range(count):
        text = "".join(make.words(join, words)) if join > 1 else next(make.words(1, words))
        said.append(" " + text)
        add({"content": said[-1]}, text=said[-1])
    add({}, "stop")
    make.add([], usage=usage(20, count), **({"obfuscation": make.pad("")} if padded else {}))
    return make.stream(
        name, True, Answer({0: ChoiceAnswer("".join(said), finish_reason="stop")}, (20, count, 20 + count))
    )


def plain(
    name: str,
    count: int,
    envelope: dict[str, Any] = VLLM,
    matches_shape: bool = True,
    words: list[str] = WORDS,
    spaced: bool = False,
    ascii: bool = False,
    entry: dict[str, Any] | None = None,
    every: bool = False,
) -> Stream:
    """Chat of a compatible server; ``entry``: more members of each choice, ``every``: usage in every chunk."""
    make, said, more = Maker(name, envelope, spaced, ascii), [], entry or {}
    used = [usage(20, at) for at in range(count + 1)]
    make.add([choice({"role": "assistant", "content": ""}, **more)], **({"usage": used[0]} if every else {}))
    for at, text in enumerate(make.words(count, words), 1):
        said.append(text)
        make.add([choice({"content": text}, **more)], **({"usage": used[at]} if every else {}))
    make.add([choice({"content": ""}, "stop", **more)], **({"usage": used[-1]} if every else {}))
    if not every:
        make.add([], usage=used[-1])
    return make.stream(
        name, matches_shape, Answer({0: ChoiceAnswer("".join(said), finish_reason="stop")}, (20, count, 20 + count))
    )


def reasoning(name: str, count: int) -> Stream:
    make = Maker(name, {**VLLM, "model": "thinker-r1", "system_fingerprint": "fp_8b7c6d5e4f"})
    thought, said = list(make.words(count)), list(make.words(count // 4))
    make.add([choice({"role": "assistant", "content": None, "reasoning_content": ""})])
    for text in thought:
        make.add([choice({"content": None, "reasoning_content": text})])
    for text in said:
        make.add([choice({"content": text, "reasoning_content": None})])
    make.add([choice({"content": "", "reasoning_content": None}, "stop")], usage=usage(20, count))
    answer = ChoiceAnswer("".join(said), "".join(thought), finish_reason="stop")
    return make.stream(name, True, Answer({0: answer}, (20, count, 20 + count)))


def tools(name: str, calls: int, fragments: int) -> Stream:
    make, answers = Maker(name, OPENAI), []
    make.add([choice({"role": "assistant", "content": None})])
    for at in range(calls):
        id, tool = f"call_{make.pad('')}{at}", f"look_up_{at}"
        head = {"index": at, "id": id, "type": "function", "function": {"name": tool, "arguments": ""}}
        make.add([choice({"tool_calls": [head]})])
        pieces = ['{"', "query", '":"', *make.words(fragments), '","', "limit", '":', "10", "}"]
        for text in pieces:
            make.add([choice({"tool_calls": [{"index": at, "function": {"arguments": text}}]})])
        answers.append((id, tool, "".join(pieces)))
    make.add([choice({}, "tool_calls")])
    make.add([], usage=usage(60, calls * fragments))
    answer = ChoiceAnswer(calls=answers, finish_reason="tool_calls")
    return make.stream(name, True, Answer({0: answer}, (60, calls * fragments, 60 + calls * fragments)))


def logprobs(name: str, count: int) -> Stream:
    make, said = Maker(name, OPENAI), []

    def token(text: str) -> dict[str, Any]:
        return {"token": text, "logprob": -make.dice.random() * 9, "bytes": list(text.encode())}

    make.add([choice({"role": "assistant", "content": "", "refusal": None})])
    for text in make.words(count):
        said.append(text)
        five = [token(make.dice.choice(WORDS)) for _ in range(5)]
        entry = choice({"content": text})
        entry["logprobs"] = {"content": [{**token(text), "top_logprobs": five}], "refusal": None}
        make.add([entry])
    make.add([choice({}, "stop")])
    make.add([], usage=usage(20, count))
    answer = ChoiceAnswer("".join(said), finish_reason="stop", logprobs=count)
    return make.stream(name, False, Answer({0: answer}, (20, count, 20 + count)))


def several(name: str, n: int, count: int) -> Stream:
    make, said = Maker(name, OPENAI), {index: [] for index in range(n)}
    for index in range(n):
        make.add([choice({"role": "assistant", "content": "", "refusal": None}, index=index)])
    for _ in range(count):
        for index in make.dice.sample(range(n), n):
            said[index].append(" " + make.dice.choice(WORDS))
            make.add([choice({"content": said[index][-1]}, index=index)])
    for index in range(n):
        make.add([choice({}, "stop", index=index)])
    make.add([], usage=usage(20, n * count))
    answers = {index: ChoiceAnswer("".join(texts), finish_reason="stop") for index, texts in said.items()}
    return make.stream(name, False, Answer(answers, (20, n * count, 20 + n * count)))


def azure(name: str, count: int) -> Stream:
    fine = {kind: {"filtered": False, "severity": "safe"} for kind in ("hate", "self_harm", "sexual", "violence")}
    made = plain(name, count, OPENAI, entry={"content_filter_results": fine})
    first = {"choices": [], "created": 0, "id": "", "model": "", "object": ""}
    first["prompt_filter_results"] = [{"prompt_index": 0, "content_filter_results": fine}]
    text = json.dumps(first, separators=(",", ":"))
    return Stream(name, True, [f"data: {text}\n\n".encode(), *made.events], made.answer)


def cumulative(name: str, count: int) -> Stream:
    sources = [f"https://example.org/articles/{at}/how-a-river-works" for at in range(8)]
    results = [{"title": f"Article {at}", "url": url, "date": "2026-01-01"} for at, url in enumerate(sources)]
    envelope = {**VLLM, "model": "searcher-pro", "citations": sources, "search_results": results}
    make, said = Maker(name, envelope), ""
    for at, text in enumerate(make.words(count), 1):
        said += text
        entry = {"index": 0, "finish_reason": "stop" if at == count else None}
        entry["message"] = {"role": "assistant", "content": said}
        make.add([{**entry, "delta": {"role": "assistant", "content": text}}], usage=usage(20, at))
    return make.stream(name, False, Answer({0: ChoiceAnswer(said, finish_reason="stop")}, (20, count, 20 + count)))


STREAMS: dict[str, Callable[[], Stream]] = {
    "chat-short": lambda: chat("chat-short", 40, padded=False),
    "chat-short-padded": lambda: chat("chat-short-padded", 40, padded=True),
    "chat-long": lambda: chat("chat-long", 2000, padded=False),
    "chat-long-padded": lambda: chat("chat-long-padded", 2000, padded=True),
    "vllm": lambda: plain("vllm", 1000),
    "spaced-escapes": lambda: plain("spaced-escapes", 1000, spaced=True, ascii=True, words=WIDE, matches_shape=False),
    "reasoning": lambda: reasoning("reasoning", 1000),
    "tool-arguments": lambda: tools("tool-arguments", 4, 200),
    "logprobs-5": lambda: logprobs("logprobs-5", 300),
    "n-4": lambda: several("n-4", 4, 250),
    "deltas-4k": lambda: chat("deltas-4k", 200, padded=False, join=820),
    "azure-filters": lambda: azure("azure-filters", 1000),
    "usage-every": lambda: plain("usage-every", 1000, every=True, matches_shape=False),
    "cumulative": lambda: cumulative("cumulative", 300),
}
