"""The pure-Python implementation: the readable reference, and the fallback where there is no extension."""

from .accumulator import ChatCompletionAccumulator, merge
from .bulk import _merge_lines as _merge_lines
from .bulk import _merge_records as _merge_records
from .bulk import merge_many
from .filter import StreamFilter
from .sse import SSEDecoder

__all__ = ["ChatCompletionAccumulator", "SSEDecoder", "StreamFilter", "merge", "merge_many"]
