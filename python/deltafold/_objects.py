"""The objects of the Chat Completions API as TypedDicts: the merged result, the stream's chunks, the request's tools.

Public as ``deltafold.types``. A member that may be missing is optional here, and one that may be null says so: the two are
different answers. A server may send members that no type names; they are in the dict all the same.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = [
    "Annotation",
    "Audio",
    "ChatCompletion",
    "ChatCompletionChunk",
    "Choice",
    "ChunkChoice",
    "CompletionTokensDetails",
    "ContentPart",
    "Custom",
    "CustomDelta",
    "Delta",
    "Function",
    "FunctionCall",
    "FunctionDefinition",
    "FunctionDelta",
    "FunctionTool",
    "Logprobs",
    "Message",
    "MessageToolCall",
    "PromptTokensDetails",
    "ReasoningDetail",
    "Role",
    "TokenLogprob",
    "ToolCallDelta",
    "TopLogprob",
    "UrlCitation",
    "Usage",
]

Role = Literal["system", "user", "assistant", "developer", "tool", "function"]


class PromptTokensDetails(TypedDict, total=False):
    """What the prompt's tokens were; null or missing is not zero."""

    cached_tokens: int | None
    cache_write_tokens: int | None
    audio_tokens: int | None
    image_tokens: int | None
    text_tokens: int | None


class CompletionTokensDetails(TypedDict, total=False):
    """What the completion's tokens were; null or missing is not zero."""

    reasoning_tokens: int | None
    audio_tokens: int | None
    text_tokens: int | None
    accepted_prediction_tokens: int | None
    rejected_prediction_tokens: int | None


class Usage(TypedDict, total=False):
    """Tokens as the server counted them; null or missing is not zero."""

    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int | None
    prompt_tokens_details: PromptTokensDetails | None
    completion_tokens_details: CompletionTokensDetails | None


class TopLogprob(TypedDict, total=False):
    """One of the likeliest tokens at a position."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob, total=False):
    """The token at a position, with the alternatives that were asked for."""

    top_logprobs: list[TopLogprob]


class Logprobs(TypedDict, total=False):
    """Log probabilities of the content's and the refusal's tokens."""

    content: list[TokenLogprob] | None
    refusal: list[TokenLogprob] | None


class Function(TypedDict, total=False):
    """The function that a tool call asks for; ``arguments`` is JSON text, whole only when the call is."""

    name: str
    arguments: str


class Custom(TypedDict, total=False):
    """The custom tool that a tool call asks for; ``input`` is free text."""

    name: str
    input: str


class MessageToolCall(TypedDict, total=False):
    """One assembled call of ``message.tool_calls``. A call that never had an id has none."""

    id: str
    type: str
    function: Function
    custom: Custom


class FunctionCall(TypedDict, total=False):
    """The old form of a tool call."""

    name: str
    arguments: str


class UrlCitation(TypedDict, total=False):
    """Where a span of the content comes from; positions are characters of the content."""

    start_index: int
    end_index: int
    title: str
    url: str


class Annotation(TypedDict, total=False):
    """One annotation, such as a ``url_citation``."""

    type: str
    url_citation: UrlCitation


class Audio(TypedDict, total=False):
    """Spoken output: ``data`` is base64, ``expires_at`` is in seconds since 1970."""

    id: str
    data: str
    transcript: str
    expires_at: int


class ContentPart(TypedDict, total=False):
    """One part of a content that is a list: ``text``, ``image_url``, ``thinking`` and what else servers send."""

    type: str
    text: str
    image_url: dict[str, Any]
    thinking: Any


class ReasoningDetail(TypedDict, total=False):
    """One block of reasoning, as some compatible services send them beside the text."""

    type: str
    id: str | None
    format: str | None
    index: int
    text: str | None
    summary: str
    data: str
    signature: str | None


class _MessageAlways(TypedDict):
    role: str
    content: str | list[ContentPart] | None


class Message(_MessageAlways, total=False):
    """A message: the assistant's own in a choice, or one of a request. ``content`` null and ``""`` are different answers."""

    refusal: str | None
    reasoning_content: str | None
    reasoning: str | None
    reasoning_details: list[ReasoningDetail] | None
    reasoning_text: str | None
    thinking: str | None
    name: str | None
    tool_calls: list[MessageToolCall]
    tool_call_id: str | None
    function_call: FunctionCall | None
    audio: Audio | None
    annotations: list[Annotation] | None


class _ChoiceAlways(TypedDict):
    index: int
    message: Message
    finish_reason: str | None


class Choice(_ChoiceAlways, total=False):
    """One answer. ``finish_reason`` null at the end means that the answer was interrupted."""

    logprobs: Logprobs | None


class _CompletionAlways(TypedDict):
    object: Literal["chat.completion"]
    choices: list[Choice]


class ChatCompletion(_CompletionAlways, total=False):
    """The merged result. ``created`` is in seconds since 1970, ``model`` the one that really served."""

    id: str
    created: int
    model: str
    usage: Usage | None
    service_tier: str | None
    system_fingerprint: str | None
    metadata: dict[str, Any] | None
    moderation: dict[str, Any] | None


class FunctionDelta(TypedDict, total=False):
    """What is new of a function."""

    name: str | None
    arguments: str | None


class CustomDelta(TypedDict, total=False):
    """What is new of a custom tool's input."""

    name: str | None
    input: str | None


class ToolCallDelta(TypedDict, total=False):
    """A fragment of a tool call; ``index`` says of which one, where the server gives it."""

    index: int | None
    id: str | None
    type: str | None
    function: FunctionDelta
    custom: CustomDelta


class Delta(TypedDict, total=False):
    """What is new of a message."""

    role: str | None
    content: str | list[ContentPart] | None
    refusal: str | None
    reasoning_content: str | None
    reasoning: str | None
    reasoning_details: list[ReasoningDetail] | None
    reasoning_text: str | None
    thinking: str | None
    name: str | None
    tool_calls: list[ToolCallDelta] | None
    function_call: FunctionDelta | None
    audio: Audio | None
    annotations: list[Annotation] | None
    obfuscation: str


class ChunkChoice(TypedDict, total=False):
    """What is new of a choice."""

    index: int | None
    delta: Delta | None
    finish_reason: str | None
    logprobs: Logprobs | None


class ChatCompletionChunk(TypedDict, total=False):
    """One JSON payload of a stream. ``choices`` is empty in the chunk that brings only ``usage``."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None
    service_tier: str | None
    system_fingerprint: str | None
    metadata: dict[str, Any] | None
    moderation: dict[str, Any] | None
    obfuscation: str


class FunctionDefinition(TypedDict, total=False):
    """A function that a request offers; ``parameters`` is a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class FunctionTool(TypedDict):
    """A tool of a request: what a returned call's name and arguments are to be checked against."""

    type: Literal["function"]
    function: FunctionDefinition
