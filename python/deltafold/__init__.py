"""Merges a Chat Completions stream into the chat.completion the server would have returned without streaming."""

from typing import TYPE_CHECKING

from ._backend import BACKEND, ChatCompletionAccumulator, SSEDecoder, StreamFilter, merge, merge_many
from ._calls import ToolCall
from ._errors import BadJson, DeltafoldError, InternalError, LimitExceeded, NotSse, Truncated, UpstreamError
from ._events import aiter_events, iter_events
from ._merge_chunks import merge_chunks
from ._otel import OTEL_VERSIONS, otel_attributes
from ._types import Diagnostic, Limits, Seen, ServerSentEvent
from .tap import Timing, atap, tap
from .unfold import unfold

__all__ = [
    "BACKEND",
    "OTEL_VERSIONS",
    "BadJson",
    "ChatCompletionAccumulator",
    "DeltafoldError",
    "Diagnostic",
    "InternalError",
    "LimitExceeded",
    "Limits",
    "NotSse",
    "SSEDecoder",
    "Seen",
    "ServerSentEvent",
    "StreamFilter",
    "Timing",
    "ToolCall",
    "Truncated",
    "UpstreamError",
    "__version__",
    "aiter_events",
    "atap",
    "iter_events",
    "merge",
    "merge_chunks",
    "merge_many",
    "otel_attributes",
    "tap",
    "unfold",
]

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name):
        # reading the installed package's metadata takes longer than importing the package
        if name == "__version__":
            from importlib.metadata import version

            return version("deltafold")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
