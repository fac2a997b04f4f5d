"""The pure-Python implementation: the readable reference, and the fallback where there is no extension."""

from .accumulator import ChatCompletionAccumulator, merge, merge_many
from .filter import StreamFilter
from .sse import SSEDecoder

__all__ = ["ChatCompletionAccumulator", "SSEDecoder", "StreamFilter", "merge", "merge_many"]
