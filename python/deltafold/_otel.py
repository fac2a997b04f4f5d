"""The OpenTelemetry attributes of a streamed response, without OpenTelemetry.

The conventions for generative AI are in development and have changed their names. A version selects what a backend expects:

    1.36.0        the last before the transition: response, finish reasons, input and output tokens
    1.37.0        the same: what moved, OpenAI's own attributes, is not given here
    1.40.0        tokens read from and written to the prompt cache
    1.41.0        reasoning tokens; the time to the first chunk
    genai-0.1.0   the first of the conventions' own repository: ``cache_write`` for ``cache_creation``; a choice that has no
                  finish reason when the stream has ended counts as ``error``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._backend import ChatCompletionAccumulator

if TYPE_CHECKING:
    from .tap import Timing

__all__ = ["OTEL_VERSIONS", "otel_attributes"]

OTEL_VERSIONS = ("1.36.0", "1.37.0", "1.40.0", "1.41.0", "genai-0.1.0")
OWN_REPOSITORY = OTEL_VERSIONS.index("genai-0.1.0")
# attribute: the member of usage, and the versions from and up to which it has that name
TOKENS: list[tuple[str, tuple[str, ...], str, str]] = [
    ("gen_ai.usage.input_tokens", ("prompt_tokens",), "1.36.0", ""),
    ("gen_ai.usage.output_tokens", ("completion_tokens",), "1.36.0", ""),
    ("gen_ai.usage.cache_read.input_tokens", ("prompt_tokens_details", "cached_tokens"), "1.40.0", ""),
    (
        "gen_ai.usage.cache_creation.input_tokens",
        ("prompt_tokens_details", "cache_write_tokens"),
        "1.40.0",
        "genai-0.1.0",
    ),
    ("gen_ai.usage.cache_write.input_tokens", ("prompt_tokens_details", "cache_write_tokens"), "genai-0.1.0", ""),
    ("gen_ai.usage.reasoning.output_tokens", ("completion_tokens_details", "reasoning_tokens"), "1.41.0", ""),
]


def otel_attributes(
    accumulator: ChatCompletionAccumulator, *, version: str = "genai-0.1.0", timing: Timing | float | None = None
) -> dict[str, str | int | float | list[str]]:
    """What a streamed response adds to a span of OpenTelemetry's conventions for generative AI.

    Args:
        accumulator: best when closed; before, what is known so far.
        version: one of ``OTEL_VERSIONS``.
        timing: a tap's ``Timing`` whose ``start`` is the request's, or the seconds from the request to the first chunk. Of a
            ``Timing`` the first content counts: comments and the empty chunk that opens a stream tell nothing of the model.

    Returns:
        A dict for ``span.set_attributes``. Only what the server reported: absent usage gives no counts, not zeros. Finish reasons
        are the server's own words, in the order of the choices. ``error.type`` is upstream's code as text, else the error's kind.

    Raises:
        ValueError: an unknown version.

    Example:
        >>> acc = ChatCompletionAccumulator()
        >>> acc.feed_chunk({"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        64
        >>> otel_attributes(acc)
        {'gen_ai.response.id': 'c-1', 'gen_ai.response.finish_reasons': ['stop']}
    """
    if version not in OTEL_VERSIONS:
        raise ValueError(f"version must be one of {', '.join(OTEL_VERSIONS)}, not {version!r}")
    at = OTEL_VERSIONS.index(version)
    found: dict[str, Any] = {"gen_ai.response.id": accumulator.id, "gen_ai.response.model": accumulator.model}
    ended = accumulator.close_reason is not None or accumulator.done_seen
    absent = "error" if at >= OWN_REPOSITORY and ended else None
    reasons = [reason or absent for reason in accumulator.finish_reasons.values()]
    found["gen_ai.response.finish_reasons"] = [reason for reason in reasons if reason is not None] or None
    usage = accumulator.usage or {}
    for name, path, since, until in TOKENS:
        if OTEL_VERSIONS.index(since) <= at and (not until or at < OTEL_VERSIONS.index(until)):
            found[name] = count(usage, path)
    if at >= OTEL_VERSIONS.index("1.41.0"):
        found["gen_ai.response.time_to_first_chunk"] = timing if timing is None else seconds(timing)
    error = accumulator.error
    if error is not None:
        found["error.type"] = str(error.code) if isinstance(error.code, (str, int)) else error.kind
    return {name: value for name, value in found.items() if value is not None}


def count(usage: dict[str, Any], path: tuple[str, ...]) -> int | None:
    """A reported number of tokens."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if type(value) is int and value >= 0 else None


def seconds(timing: Timing | float) -> float | None:
    """From the request to the first chunk."""
    return float(timing) if isinstance(timing, (int, float)) else timing.first_content
