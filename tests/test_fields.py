"""Every documented field of a completion survives a stream, and has its type in deltafold.types."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from conftest import Backend
from deltafold import types
from streams import END, chunk, merged, same

TOP, CHOICE, MESSAGE, USAGE = "top", "choice", "message", "usage"
TOKEN = {
    "token": "é",
    "logprob": -0.25,
    "bytes": [195, 169],
    "top_logprobs": [{"token": "é", "logprob": -0.25, "bytes": None}],
}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
CUSTOM = {"id": "d", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
CITATION = {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 2, "title": "t", "url": "u"}}
PROMPT = {"cached_tokens": 1, "cache_write_tokens": 2, "audio_tokens": 3, "image_tokens": 4, "text_tokens": 5}
COMPLETION = {
    "reasoning_tokens": 1,
    "audio_tokens": 2,
    "text_tokens": 3,
    "accepted_prediction_tokens": 4,
    "rejected_prediction_tokens": 5,
}

# where, field, what the stream brings in turn, what the result has
ROWS: list[tuple[str, str, list[Any], Any]] = [
    (TOP, "id", ["chatcmpl-1", "chatcmpl-1"], "chatcmpl-1"),
    (TOP, "object", ["chat.completion.chunk"], "chat.completion"),
    (TOP, "created", [1767225600], 1767225600),
    (TOP, "model", ["asked", "served"], "served"),
    (TOP, "usage", [None, {"total_tokens": 3}], {"total_tokens": 3}),
    (TOP, "usage", [None], None),
    (TOP, "service_tier", ["auto", "default"], "default"),
    (TOP, "service_tier", [None], None),
    (TOP, "system_fingerprint", ["fp_1", None], "fp_1"),
    (TOP, "metadata", [{"a": "1"}, None], {"a": "1"}),
    (TOP, "metadata", [None], None),
    (TOP, "moderation", [{"flagged": False}], {"flagged": False}),
    (TOP, "moderation", [None], None),
    (CHOICE, "finish_reason", [None, "length"], "length"),
    *(
        (CHOICE, "finish_reason", [reason], reason)
        for reason in ("tool_calls", "content_filter", "function_call", "error")
    ),
    (CHOICE, "logprobs", [None], None),
    (
        CHOICE,
        "logprobs",
        [{"content": [TOKEN], "refusal": None}, {"content": [TOKEN]}],
        {"content": [TOKEN, TOKEN], "refusal": None},
    ),
    (CHOICE, "logprobs", [{"content": None, "refusal": [TOKEN]}], {"content": None, "refusal": [TOKEN]}),
    *(
        (MESSAGE, "role", [role, None], role)
        for role in ("system", "user", "assistant", "developer", "tool", "function")
    ),
    (MESSAGE, "content", ["a", "b"], "ab"),
    (MESSAGE, "content", [""], ""),
    (MESSAGE, "content", [None], None),
    (
        MESSAGE,
        "content",
        [[{"type": "image_url", "image_url": {"url": "u"}}]],
        [{"type": "image_url", "image_url": {"url": "u"}}],
    ),
    (MESSAGE, "refusal", ["I ", "can't"], "I can't"),
    (MESSAGE, "refusal", [None], None),
    (MESSAGE, "reasoning_content", ["a", "b"], "ab"),
    (MESSAGE, "reasoning_content", [None], None),
    (MESSAGE, "reasoning", ["a", "a"], "aa"),
    (MESSAGE, "name", ["Ann", "Ann"], "Ann"),
    (MESSAGE, "name", [None], None),
    (MESSAGE, "tool_calls", [[{"index": 0, **CALL}], [{"index": 1, **CUSTOM}]], [CALL, CUSTOM]),
    (MESSAGE, "tool_call_id", ["call_1", "call_1", "call_1"], "call_1"),
    (MESSAGE, "tool_call_id", [None], None),
    (MESSAGE, "function_call", [{"name": "f", "arguments": "{"}, {"arguments": "}"}], {"name": "f", "arguments": "{}"}),
    (MESSAGE, "function_call", [None], None),
    (MESSAGE, "annotations", [[CITATION]], [CITATION]),
    (MESSAGE, "annotations", [[]], []),
    (
        MESSAGE,
        "audio",
        [{"id": "a", "data": "QQ==", "transcript": "x", "expires_at": 5}],
        {"id": "a", "data": "QQ==", "transcript": "x", "expires_at": 5},
    ),
    (MESSAGE, "audio", [None], None),
    *((USAGE, name, [3, 7], 7) for name in ("prompt_tokens", "completion_tokens", "total_tokens")),
    *((USAGE, name, [None], None) for name in ("prompt_tokens", "completion_tokens", "total_tokens")),
    (USAGE, "prompt_tokens_details", [None, PROMPT], PROMPT),
    (USAGE, "prompt_tokens_details", [None], None),
    (USAGE, "completion_tokens_details", [COMPLETION, None], COMPLETION),
    (USAGE, "completion_tokens_details", [None], None),
]
TYPES: dict[str, tuple[Any, Any]] = {
    TOP: (types.ChatCompletion, types.ChatCompletionChunk),
    CHOICE: (types.Choice, types.ChunkChoice),
    MESSAGE: (types.Message, types.Delta),
    USAGE: (types.Usage, types.Usage),
}


def carried(where: str, field: str, value: Any) -> dict[str, Any]:
    return {
        TOP: {field: value},
        CHOICE: chunk({}, 0, **{field: value}),
        MESSAGE: chunk({field: value}),
        USAGE: {"choices": [], "usage": {field: value}},
    }[where]


@pytest.mark.parametrize(("where", "field", "values", "expected"), ROWS)
def test_field(backend: Backend, where: str, field: str, values: list[Any], expected: Any) -> None:
    outcome = merged(backend, *(carried(where, field, value) for value in values), *END)
    holder = {TOP: outcome.result, CHOICE: outcome.choice, MESSAGE: outcome.message, USAGE: outcome.usage or {}}[where]
    assert same(holder[field], expected)
    assert outcome.error is None
    assert outcome.diagnostics == []


@pytest.mark.parametrize(("where", "field"), sorted({(row[0], row[1]) for row in ROWS}))
def test_field_has_its_type(where: str, field: str) -> None:
    whole, _ = TYPES[where]
    assert field in get_type_hints(whole)
    nullable = any(row[3] is None for row in ROWS if row[:2] == (where, field))
    if nullable:
        assert type(None) in get_args(get_type_hints(whole)[field]), "null is an answer of its own"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (types.PromptTokensDetails, PROMPT),
        (types.CompletionTokensDetails, COMPLETION),
        (types.TokenLogprob, TOKEN),
        (types.TopLogprob, TOKEN["top_logprobs"][0]),  # type: ignore[index]
        (types.MessageToolCall, CALL | CUSTOM),
        (types.ToolCallDelta, {"index": 0} | CALL | CUSTOM),
        (types.Function, CALL["function"]),
        (types.Custom, CUSTOM["custom"]),
        (types.UrlCitation, CITATION["url_citation"]),
        (types.Audio, ["id", "data", "transcript", "expires_at"]),
        (types.FunctionTool, ["type", "function"]),
        (types.FunctionDefinition, ["name", "description", "parameters"]),
        (types.ChunkChoice, ["index", "delta", "finish_reason", "logprobs"]),
    ],
)
def test_inner_fields_have_their_types(kind: Any, names: Any) -> None:
    assert set(names) <= get_type_hints(kind).keys()


def test_roles() -> None:
    assert set(get_args(types.Role)) == {"system", "user", "assistant", "developer", "tool", "function"}
