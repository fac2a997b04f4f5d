"""The inverse of ``merge``: a whole ``chat.completion`` as the events of a stream.

For each choice a first chunk (the role, and every member that is not streamed), then reasoning, content, refusal, tool
calls, the old function call and audio in pieces, then the finish reason; for all of them the usage, and ``[DONE]``. A piece
must not come back as something else, which decides where text may be cut:

- strings under names that nobody knows are sent whole, since two equal pieces would be read as one constant;
- a ``{}`` in front of a ``{`` is a placeholder that a merge drops, so that arguments are not cut there;
- base64 is cut between groups of four, so that a player can decode each piece;
- two neighbouring content parts of one type would become one: an empty part between them keeps them apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

__all__ = ["unfold"]

REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
STREAMED = frozenset({*REASONING, "content", "refusal", "tool_calls", "function_call", "audio"})
ENVELOPE = ("id", "created", "model", "service_tier", "system_fingerprint")
CHOICE = frozenset({"index", "message", "finish_reason", "logprobs"})
GIVEN = {"function": "arguments", "custom": "input"}
AUDIO_CHARS = 16384  # of base64 in one event: a multiple of four
LOGPROBS = 64  # entries in one event, where they do not follow the text
DONE = b"data: [DONE]\n\n"

Object = dict[str, Any]


def unfold(completion: Mapping[str, Any], *, chunk_chars: int = 32, include_usage: bool = True) -> Iterator[bytes]:
    """A merged completion as the events of a stream: for a cache hit, or for a client who asked for a stream.

    ``merge(unfold(completion)) == completion`` for every result of a merge under the same ``Limits``, but for

    - numbers that JSON does not have: NaN and infinities are sent as null, as in ``result_json()``;
    - a single member nobody knows that is larger than ``max_event_bytes``: it is sent whole;
    - usage that reports no count, beside choices whose own usage differs in type: which of these came last is not kept.

    Args:
        completion: a ``chat.completion`` as ``result()`` gives it; it is not changed.
        chunk_chars: code points of text in one event, at the most. Where log probabilities come with the text, tokens are
            not cut.
        include_usage: False leaves the usage out, for a client who did not ask for it.

    Returns:
        Whole events, UTF-8 with LF line ends, the last one ``data: [DONE]``.

    Raises:
        TypeError: ``completion`` is not a completion: no mapping with a list of choices that have an index and a message.
        ValueError: ``chunk_chars`` is not positive.

    Example:
        >>> completion = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
        >>> print(b"".join(unfold(completion)).decode(), end="")  # doctest: +ELLIPSIS
        data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}
        <BLANKLINE>
        data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}
        <BLANKLINE>
        data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}
        <BLANKLINE>
        data: [DONE]
        <BLANKLINE>
    """
    if isinstance(chunk_chars, bool) or not isinstance(chunk_chars, int):
        raise TypeError(f"chunk_chars must be an int, not {type(chunk_chars).__name__}")
    if chunk_chars < 1:
        raise ValueError(f"chunk_chars must be at least 1, not {chunk_chars}")
    choices = completion.get("choices") if isinstance(completion, Mapping) else None
    if not isinstance(choices, list) or not all(is_choice(c) for c in choices):
        raise TypeError("completion must be a chat.completion: choices, a list of objects with an index and a message")
    return _events(completion, choices, chunk_chars, include_usage)


def is_choice(value: Any) -> bool:
    return isinstance(value, Mapping) and type(value.get("index")) is int and isinstance(value.get("message"), Mapping)


def _events(completion: Mapping[str, Any], choices: list[Any], most: int, include_usage: bool) -> Iterator[bytes]:
    head = {"object": "chat.completion.chunk"} | {k: completion[k] for k in ENVELOPE if k in completion}
    if "id" in head:
        head = {"id": head.pop("id")} | head
    usage = completion.get("usage")
    others = {k: v for k, v in completion.items() if k not in ENVELOPE and k not in ("object", "choices", "usage")}
    if include_usage and "usage" in completion and usage is None:
        others["usage"] = None
    entries = (entry for choice in choices for entry in _entries(choice, most))
    first = next(entries, None)
    yield event(head | {"choices": [] if first is None else [first]} | others)
    for entry in entries:
        yield event(head | {"choices": [entry]})
    if include_usage and usage is not None:
        yield event(head | {"choices": [], "usage": usage})
    yield DONE


def event(chunk: Object) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"


def encode(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return encode(finite(value))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: no result has one, and as an escape it passes
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def finite(value: Any) -> Any:
    """``value`` with null in the place of every number that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, (list, tuple)) else value


def _entries(choice: Mapping[str, Any], most: int) -> Iterator[Object]:
    """The entries of ``choices`` that one choice becomes, each for a chunk of its own."""
    index, message = choice["index"], choice["message"]
    first = {"index": index, "delta": opening(message), "finish_reason": None}
    logprobs = choice.get("logprobs")
    if "logprobs" in choice:
        first["logprobs"] = opened(logprobs)
    yield first
    for name in REASONING:
        for piece in cut(message.get(name), most):
            yield entry(index, {name: piece})
    content = message.get("content")
    tokens = aligned(content, logprobs)
    if tokens is not None:
        for piece, group in grouped(tokens, most):
            yield entry(index, {"content": piece}) | {"logprobs": {"content": group}}
    elif isinstance(content, list):
        for part in parts(content, most):
            yield entry(index, {"content": [part]})
    else:
        for piece in cut(content, most):
            yield entry(index, {"content": piece})
    for piece in cut(message.get("refusal"), most):
        yield entry(index, {"refusal": piece})
    for rest in logprob_slices(logprobs, "content" if tokens is not None else None):
        yield entry(index, {}) | {"logprobs": rest}
    for fragment in call_fragments(message.get("tool_calls"), most):
        yield entry(index, {"tool_calls": [fragment]})
    function_call = message.get("function_call")
    if isinstance(function_call, Mapping):
        for fragment in given_fragments(function_call, "arguments", most):
            yield entry(index, {"function_call": fragment})
    for sound in sounds(message.get("audio"), most):
        yield entry(index, {"audio": sound})
    others = {k: v for k, v in choice.items() if k not in CHOICE}
    finish_reason = choice.get("finish_reason")
    if others or finish_reason is not None:
        yield {"index": index, "delta": {}, "finish_reason": finish_reason, **others}


def entry(index: int, delta: Object) -> Object:
    return {"index": index, "delta": delta, "finish_reason": None}


def opening(message: Mapping[str, Any]) -> Object:
    """The first delta: what is streamed is empty in it, everything else is whole."""
    delta: Object = {}
    for name, value in message.items():
        if name not in STREAMED or value is None and name != "tool_calls":
            delta[name] = value
        elif isinstance(value, str):
            delta[name] = ""
        elif name in REASONING:  # of a server that has its own idea of it
            delta[name] = value
    return delta


def cut(text: Any, most: int) -> Iterator[str]:
    if isinstance(text, str):
        for at in range(0, len(text), most):
            yield text[at : at + most]


# Log probabilities


def opened(logprobs: Any) -> Any:
    """The log probabilities with empty lists."""
    if isinstance(logprobs, Mapping):
        return {k: [] if isinstance(v, list) else v for k, v in logprobs.items()}
    return [] if isinstance(logprobs, list) else logprobs


def aligned(content: Any, logprobs: Any) -> list[Object] | None:
    """The tokens whose texts together are the content."""
    tokens = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(tokens, list) or not isinstance(content, str):
        return None
    texts = [t["token"] for t in tokens if isinstance(t, Mapping) and isinstance(t.get("token"), str)]
    return tokens if len(texts) == len(tokens) and "".join(texts) == content else None


def grouped(tokens: list[Object], most: int) -> Iterator[tuple[str, list[Object]]]:
    """Tokens with ``most`` characters together, a longer one alone."""
    text, group = "", list[Object]()
    for token in tokens:
        if group and (len(text) + len(token["token"]) > most or len(group) == LOGPROBS):
            yield text, group
            text, group = "", []
        text += token["token"]
        group.append(token)
    if group:
        yield text, group


def logprob_slices(logprobs: Any, sent: str | None) -> Iterator[Any]:
    """The lists' entries that have not been ``sent`` with the text."""
    if isinstance(logprobs, list):
        for at in range(0, len(logprobs), LOGPROBS):
            yield logprobs[at : at + LOGPROBS]
    elif isinstance(logprobs, Mapping):
        for name, values in logprobs.items():
            if isinstance(values, list) and name != sent:
                for at in range(0, len(values), LOGPROBS):
                    yield {name: values[at : at + LOGPROBS]}


# Content parts


def parts(values: list[Any], most: int) -> Iterator[Any]:
    before = None
    for part in values:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == before == "text":
            yield {"type": "thinking", "thinking": []}
        elif kind == before == "thinking":
            yield {"type": "text", "text": ""}
        before = kind
        own = part.get(kind) if isinstance(kind, str) and kind in ("text", "thinking") else None
        pieces: list[Any] = []
        if isinstance(own, str):
            pieces = list(cut(own, most))
        elif kind == "thinking" and isinstance(own, list):
            pieces = [[inner] for inner in parts(own, most)]
        yield {**part, kind: pieces[0]} if pieces else part
        for piece in pieces[1:]:
            yield {"type": kind, kind: piece}


# Tool calls


def call_fragments(calls: Any, most: int) -> Iterator[Object]:
    """A call that has neither id nor name can only be the first one to come, wherever it stands in the result."""
    indexed = list(enumerate(calls)) if isinstance(calls, list) else []
    for index, call in sorted(indexed, key=lambda item: is_known(item[1])):
        given = {k: list(given_fragments(call[k], own, most)) for k, own in GIVEN.items() if k in call}
        yield {"index": index, **call, **{k: fragments[0] for k, fragments in given.items()}}
        for key, fragments in given.items():
            for fragment in fragments[1:]:
                yield {"index": index, key: fragment}


def is_known(call: Mapping[str, Any]) -> bool:
    return bool(call.get("id") or any((call.get(k) or {}).get("name") for k in GIVEN))


def given_fragments(function: Any, given: str, most: int) -> Iterator[Any]:
    """The first fragment has the name and no arguments yet."""
    text = function.get(given) if isinstance(function, Mapping) else None
    if not isinstance(text, str):
        yield function
        return
    yield {**function, given: ""}
    if text[:3] == "{}{":
        yield {given: text[:3]}
        text = text[3:]
    for piece in cut(text, most):
        yield {given: piece}


# Audio


def sounds(audio: Any, most: int) -> Iterator[Object]:
    if not isinstance(audio, Mapping):
        return
    data = list(cut(audio.get("data"), AUDIO_CHARS))
    transcript = list(cut(audio.get("transcript"), most))
    yield {**audio, **({"data": data[0]} if data else {}), **({"transcript": transcript[0]} if transcript else {})}
    for sound, words in zip_longest(data[1:], transcript[1:]):
        yield ({} if sound is None else {"data": sound}) | ({} if words is None else {"transcript": words})
