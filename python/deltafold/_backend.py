"""Chooses the implementation, once: ``rust`` where the extension is installed, else ``pure``.

``DELTAFOLD_BACKEND=rust`` or ``=pure`` forces one. Only an absent extension falls back: a broken one raises what broke it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

__all__ = [
    "BACKEND",
    "ChatCompletionAccumulator",
    "SSEDecoder",
    "StreamFilter",
    "_merge_lines",
    "_merge_records",
    "merge",
    "merge_many",
]

BACKEND: Literal["rust", "pure"]


def _chosen() -> Literal["rust", "pure"]:
    forced = os.environ.get("DELTAFOLD_BACKEND", "")
    if forced == "pure":
        return "pure"
    if forced not in ("", "rust"):
        raise ImportError(f"DELTAFOLD_BACKEND must be rust or pure, not {forced!r}")
    try:
        import deltafold._rust  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "deltafold._rust":
            raise
        if forced:
            raise ImportError("DELTAFOLD_BACKEND=rust, but this installation of deltafold has no extension") from error
        return "pure"
    return "rust"


BACKEND = _chosen()

if TYPE_CHECKING or BACKEND == "pure":
    from ._pure import ChatCompletionAccumulator, SSEDecoder, StreamFilter, merge, merge_many
    from ._pure.bulk import _merge_lines, _merge_records
else:
    from ._rust import (
        ChatCompletionAccumulator,
        SSEDecoder,
        StreamFilter,
        _merge_lines,
        _merge_records,
        merge,
        merge_many,
    )
