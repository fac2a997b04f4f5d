"""For code that uses LiteLLM: ``stream_chunk_builder`` with its call and its type of answer, over deltafold's merging.

litellm itself (``deltafold[litellm]``) is imported at the first call. ``docs/litellm.md`` tells where the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._backend import ChatCompletionAccumulator
from ._chunks import as_dict
from ._types import Limits

if TYPE_CHECKING:
    from litellm import ModelResponse, TextCompletionResponse

__all__ = ["stream_chunk_builder"]


def stream_chunk_builder(
    chunks: Iterable[Any],
    messages: Any = None,
    start_time: Any = None,
    end_time: Any = None,
    logging_obj: Any = None,
    count_prompt_tokens: Callable[[], int] | None = None,
    *,
    estimate: bool = False,
    limits: Limits | None = None,
) -> ModelResponse | TextCompletionResponse | None:
    """Merges the chunks of one stream into litellm's ``ModelResponse``; None when there are none.

    Args:
        chunks: ``ModelResponseStream`` objects, or chunks as ``feed_chunk`` takes them.
        messages: the request's messages; only ``estimate`` looks at them.
        start_time, end_time, logging_obj: taken and not used, as no cost is computed.
        count_prompt_tokens: counts the prompt when ``estimate`` has to.
        estimate: where no usage was reported, count tokens with litellm's tokenizer. Without it ``usage`` is then None.
        limits: as for ``ChatCompletionAccumulator``.

    A stream that broke off gives what came, its missing finish reasons None. Chunks of a text completion are handed to litellm.
    """
    chunks = list(chunks)
    if not chunks:
        return None
    if any(is_text_completion(chunk) for chunk in chunks[:2]):
        import litellm

        return litellm.stream_chunk_builder(chunks, messages, start_time, end_time, logging_obj)
    accumulator, added, hidden = ChatCompletionAccumulator(limits), Added(), []
    for chunk in chunks:
        hidden.append(getattr(chunk, "_hidden_params", None) or {})
        accumulator.feed_chunk(added.taken_from(as_dict(chunk), hidden[-1]))
    accumulator.close()
    return response_of(accumulator, added, hidden[0], messages, count_prompt_tokens, estimate)


def response_of(
    accumulator: ChatCompletionAccumulator,
    added: Added,
    hidden: Any,
    messages: Any,
    count_prompt_tokens: Callable[[], int] | None,
    estimate: bool,
) -> ModelResponse:
    """What litellm makes of the merged result, without what its types make up on the way."""
    from litellm import ModelResponse

    result = accumulator.result()
    usage = result.pop("usage", None)
    for choice in result["choices"]:
        message, index = choice["message"], choice["index"]
        added.given_to(message, index)
        if isinstance(message["content"], list):  # litellm's message holds text
            message["content"] = accumulator.text(index)
            message.setdefault("reasoning_content", accumulator.reasoning_text(index) or None)
    reasons = accumulator.finish_reasons
    response: Any = ModelResponse(**result)
    for choice in response.choices:
        if reasons[choice.index] is None:
            choice.finish_reason = None
    if usage is None and estimate:
        usage = estimated(accumulator, result.get("model") or "", messages, count_prompt_tokens)
    if usage is not None:
        from litellm import Usage

        response.usage = Usage(**usage)
    else:
        response.usage = None
    if isinstance(hidden, Mapping):
        response._hidden_params = dict(hidden)
    return response


def estimated(
    accumulator: ChatCompletionAccumulator, model: str, messages: Any, count_prompt_tokens: Callable[[], int] | None
) -> dict[str, Any]:
    """Tokens as litellm's tokenizer counts them."""
    from litellm import token_counter

    prompt = count_prompt_tokens() if count_prompt_tokens else token_counter(model=model, messages=messages or [])
    written = []
    for index in accumulator.finish_reasons:
        calls = accumulator.tool_calls(index)
        written += [accumulator.reasoning_text(index), accumulator.text(index), *(call.arguments for call in calls)]
    completion = token_counter(model=model, text="".join(written), count_response_tokens=True)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class Added:
    """What litellm itself puts into deltas, merged as litellm does it: ``thinking_blocks`` come in fragments without an index, and
    a signature ends a block; of ``provider_specific_fields`` the last of each name counts, and each ``citation`` is one more."""

    def __init__(self) -> None:
        self.blocks: dict[int, list[dict[str, Any]]] = {}
        self.fields: dict[int, dict[str, Any]] = {}
        self.citations: dict[int, list[Any]] = {}

    def taken_from(self, chunk: dict[str, Any], hidden: Any) -> dict[str, Any]:
        """The chunk without them, and with the usage that litellm may have put aside."""
        taken = dict(chunk)
        if not taken.get("usage") and isinstance(hidden, Mapping) and hidden.get("usage"):
            taken["usage"] = as_dict(hidden["usage"])
        if isinstance(taken.get("choices"), list):
            taken["choices"] = [self._without(entry, at) for at, entry in enumerate(taken["choices"])]
        return taken

    def given_to(self, message: dict[str, Any], choice: int) -> None:
        """Puts them into a message of the result."""
        if choice in self.blocks:
            message["thinking_blocks"] = self.blocks[choice]
        citations, fields = self.citations.get(choice), self.fields.get(choice, {})
        if citations:
            fields = {"citations": citations if all(isinstance(c, list) for c in citations) else [citations]} | fields
        if fields:
            message["provider_specific_fields"] = fields

    def _without(self, entry: Any, position: int) -> Any:
        entry = as_dict(entry)
        delta = entry.get("delta")
        if delta is None:
            return entry
        delta = dict(as_dict(delta))
        index = entry.get("index")
        choice = index if type(index) is int else position
        if delta.get("thinking_blocks"):
            blocks = self.blocks.setdefault(choice, [])
            for fragment in delta.pop("thinking_blocks"):
                add(blocks, as_dict(fragment))
        if isinstance(delta.get("provider_specific_fields"), dict):
            fields = delta.pop("provider_specific_fields")
            self.fields.setdefault(choice, {}).update((k, v) for k, v in fields.items() if k != "citation")
            if fields.get("citation") is not None:
                self.citations.setdefault(choice, []).append(fields["citation"])
        return {**entry, "delta": delta}


def add(blocks: list[dict[str, Any]], fragment: dict[str, Any]) -> None:
    """One fragment: to the block that is open, else a block of its own."""
    last = blocks[-1] if blocks else None
    if fragment.get("type") == "redacted_thinking" or last is None or last.get("signature") or "thinking" not in last:
        blocks.append({name: member for name, member in fragment.items() if member is not None})
        if fragment.get("type") != "redacted_thinking":
            blocks[-1].setdefault("thinking", "")
        return
    last["thinking"] += fragment.get("thinking") or ""
    if fragment.get("signature"):
        last["signature"] = fragment["signature"]


def is_text_completion(chunk: Any) -> bool:
    """Old text completions stream through the same function."""
    choices = chunk.get("choices") if isinstance(chunk, Mapping) else getattr(chunk, "choices", None)
    if not choices:
        return False
    first = choices[0]
    if isinstance(first, Mapping):
        return "text" in first and "delta" not in first
    return hasattr(first, "text") and not hasattr(first, "delta")
