"""Chunk objects as JSON text: what both implementations read when a chunk does not come as bytes."""

from __future__ import annotations

import json
import re
from typing import Any

HALF = re.compile("[\ud800-\udfff]")


def chunk_text(chunk: Any) -> str:
    """A chunk object as the JSON text that a server might have sent, compact and without needless escapes.

    Raises:
        TypeError: the object is no chunk, or holds what JSON cannot say.
    """
    try:
        text = json.dumps(as_dict(chunk), ensure_ascii=False, separators=(",", ":"), default=as_dict)
    except (ValueError, RecursionError) as error:
        raise TypeError(f"the chunk cannot be written as JSON: {error}") from None
    return text if text.isascii() else HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def as_dict(value: Any) -> dict[str, Any]:
    """The dict behind a chunk, or behind a member of one."""
    if isinstance(value, dict):
        return value
    for name, options in (("model_dump", {"exclude_unset": True}), ("to_dict", {})):
        dump = getattr(value, name, None)
        if callable(dump) and not isinstance(value, type):
            dumped = dump(**options)
            if isinstance(dumped, dict):
                return dumped
    raise TypeError(f"a chunk must be a dict or have model_dump() or to_dict(), not {type(value).__name__}")
