"""A stream that is there as objects, merged at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._backend import ChatCompletionAccumulator
from ._types import Limits


def merge_chunks(chunks: Iterable[Any], *, limits: Limits | None = None, n: int | None = None) -> dict[str, Any]:
    """Merges the parsed chunks of one response: dicts, or objects with ``model_dump`` (openai, litellm) or ``to_dict``.

    Raises:
        DeltafoldError: as ``merge`` does; without ``[DONE]``, a stream is whole when every choice has its finish reason.
        TypeError: a chunk is none of these.

    Example:
        >>> chunk = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
        >>> merge_chunks([chunk])["choices"][0]["message"]
        {'role': 'assistant', 'content': 'Hi'}
    """
    accumulator = ChatCompletionAccumulator(limits, n)
    for chunk in chunks:
        accumulator.feed_chunk(chunk)
    accumulator.close()
    accumulator.raise_for_error()
    return accumulator.result()
