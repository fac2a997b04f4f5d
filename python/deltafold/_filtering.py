"""What both StreamFilters share: their options checked, the caller's functions called, and events made whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["changed_chunk", "changed_usage", "options", "whole_event"]

_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def options(
    model: Any, id: Any, drop_usage_chunk: Any, strip: Iterable[str], set_usage: Any, on_chunk: Any, observe: Any
) -> tuple[str | None, str | None, list[list[str]]]:
    """``model`` and ``id`` as JSON texts, ``strip`` as lists of names; raises what is wrong with any option."""
    for name, value in (("model", model), ("id", id)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be a str or None, not {type(value).__name__}")
    if not isinstance(drop_usage_chunk, bool):
        raise TypeError(f"drop_usage_chunk must be a bool, not {type(drop_usage_chunk).__name__}")
    if isinstance(strip, (str, bytes)):
        raise TypeError(f"strip must be several names, such as ({strip!r},), not one")
    strip, paths = tuple(strip), []
    for path in strip:
        if not isinstance(path, str):
            raise TypeError(f"a name in strip must be a str, not {type(path).__name__}")
        paths.append(path.split("."))
        if "" in paths[-1]:
            raise ValueError(f"{path!r} in strip is no dotted path of names")
    for name, value in (("set_usage", set_usage), ("on_chunk", on_chunk)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable or None, not {type(value).__name__}")
    if observe is not None and not callable(getattr(observe, "feed", None)):
        raise TypeError(f"observe must be an accumulator or None, not {type(observe).__name__}")
    for text in (model, id, *strip):
        if text is not None:
            text.encode()  # raises for half a surrogate pair, which no UTF-8 holds
    alias, id_alias = (None if text is None else _write(text) for text in (model, id))
    return alias, id_alias, paths


def changed_usage(set_usage: Callable[[dict[str, Any]], Any], text: bytes) -> bytes | None:
    """The JSON text to stand for the usage object ``text``; None where it stays."""
    usage, before = _read(text)
    if before is None:
        return None
    changed = set_usage(usage)
    if changed is None:
        return None
    if not isinstance(changed, dict):
        raise TypeError(f"set_usage must return a dict or None, not {type(changed).__name__}")
    written = _write_bytes(changed)
    return None if written == before else written


def changed_chunk(on_chunk: Callable[[dict[str, Any]], Any], text: bytes) -> bytes | bool:
    """The text to stand for the chunk ``text``; True where it stays, False where it goes."""
    chunk, before = _read(text)
    if before is None:
        return True
    changed = on_chunk(chunk)
    if changed is None:
        return False
    if isinstance(changed, bytes):
        if b"\n" in changed or b"\r" in changed:
            raise ValueError("on_chunk must return JSON on one line: a line end would end the data line")
        return changed
    if not isinstance(changed, dict):
        raise TypeError(f"on_chunk must return a dict, bytes or None, not {type(changed).__name__}")
    written = _write_bytes(changed)
    return True if written == before else written


def whole_event(event: bytes | bytearray | memoryview) -> bytes:
    """``event`` with the line ends that it lacks to be followed by others."""
    if not isinstance(event, (bytes, bytearray, memoryview)):
        raise TypeError(f"an event must be bytes, bytearray or memoryview, not {type(event).__name__}")
    data = bytes(event)
    if not data:
        return data
    if not data.endswith((b"\n", b"\r")):
        return data + b"\n\n"
    line = data[: -2 if data.endswith(b"\r\n") else -1]
    return data if not line or line.endswith((b"\n", b"\r")) else data + b"\n"


def _read(text: bytes) -> tuple[Any, bytes | None]:
    """The value, and how it would be written if nobody changed it; None where the interpreter's own limits refuse it."""
    try:
        value = json.loads(text.decode("utf-8", "replace"))
        return value, _write_bytes(value)
    except (ValueError, RecursionError):
        return None, None


def _write_bytes(value: Any) -> bytes:
    # half a surrogate pair, whose other half the next chunk brings, becomes the escape it came as
    return _write(value).encode("utf-8", "backslashreplace")
