"""Merges a Chat Completions stream into the chat.completion the server would have returned without streaming."""

from typing import TYPE_CHECKING

from ._backend import BACKEND, ChatCompletionAccumulator, SSEDecoder, merge, merge_many
from ._calls import ToolCall
from ._errors import BadJson, DeltafoldError, InternalError, LimitExceeded, NotSse, Truncated, UpstreamError
from ._events import aiter_events, iter_events
from ._types import Diagnostic, Limits, Seen, ServerSentEvent

__all__ = [
    "BACKEND",
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
    "ToolCall",
    "Truncated",
    "UpstreamError",
    "__version__",
    "aiter_events",
    "iter_events",
    "merge",
    "merge_many",
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
