"""Tool arguments as Python objects, checked against the tools of the request; and results in a caller's own types."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import peers
from conftest import Backend
from deltafold import ToolCall
from streams import chunk, sse

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "pattern": "^[A-Z]"},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "a/b": {"type": "integer"},
        "more": {"additionalProperties": {"$ref": "#/$defs/stay"}},
    },
    "patternProperties": {"^x_": {"type": "string"}},
    "$defs": {"stay": {"properties": {"days": {"type": "integer"}}}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "no_parameters"}},
    {"type": "function", "function": {"name": "forecast", "parameters": SCHEMA}},
    {"type": "custom", "custom": {"name": "grep"}},
    {"type": "web_search"},
]


def function(arguments: str, name: str | None = "forecast") -> ToolCall:
    return ToolCall("call_1", "function", name, arguments)


def test_arguments_that_fit() -> None:
    peers.load("jsonschema_rs")
    assert function('{"city": "Ulm", "days": [1, 2]}').parse(TOOLS) == {"city": "Ulm", "days": [1, 2]}
    assert function(' {"city": "Ulm"} ').parse(tools=tuple(TOOLS)) == {"city": "Ulm"}
    assert function("[1]", "no_parameters").parse(TOOLS) == [1]
    assert ToolCall("c", "custom", "grep", "not JSON").parse(TOOLS) == "not JSON"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('{"city": "secret"}', "the arguments do not fit: /city breaks pattern"),
        ('{"city": ["secret"]}', "the arguments do not fit: /city breaks type"),
        ('{"city": "Ulm", "days": [3, 0]}', "the arguments do not fit: /days/1 breaks minimum"),
        ('{"city": "Ulm", "a/b": "secret"}', "the arguments do not fit: /a~1b breaks type"),
        ('{"city": "Ulm", "secret": 1}', "the arguments do not fit: the whole breaks additionalProperties"),
        ('{"days": [1]}', "the arguments do not fit: the whole breaks required"),
        ('["secret"]', "the arguments do not fit: the whole breaks type"),
        ('{"city": "Ulm", "x_secret": 1}', "the arguments do not fit: /* breaks type"),
        (
            '{"city": "Ulm", "more": {"secret": {"days": "secret"}}}',
            "the arguments do not fit: /more/*/days breaks type",
        ),
        ('{"city": "\\ud83dsecret"}', "the arguments hold half a surrogate pair"),
        ('{"city": "Ulm", "\\ud83dsecret": 1}', "the arguments hold half a surrogate pair"),
    ],
)
def test_the_error_names_the_path_and_not_the_content(arguments: str, message: str) -> None:
    peers.load("jsonschema_rs")
    with pytest.raises(ValueError, match="the arguments") as caught:
        function(arguments).parse(TOOLS)
    assert str(caught.value) == message
    assert type(caught.value) is ValueError  # others hold what they are about


@pytest.mark.parametrize("name", ["forecasts", "Forecast", "", None, "grep", "web_search"])
def test_a_name_that_was_not_offered(name: str | None) -> None:
    with pytest.raises(ValueError, match="no function tool of this name was offered"):
        function('{"city": "Ulm"}', name).parse(TOOLS)
    with pytest.raises(ValueError, match="no custom tool of this name was offered: 'forecast'"):
        ToolCall("c", "custom", "forecast", "x").parse(TOOLS)


def test_a_name_is_escaped_in_the_message() -> None:
    with pytest.raises(ValueError, match="was offered") as caught:
        function("{}", "a\x1b[31m\u202e").parse(TOOLS)
    assert str(caught.value) == "no function tool of this name was offered: 'a\\x1b[31m\\u202e'"


@pytest.mark.parametrize("arguments", ["", "{", '{"city": "Ul', '{"city": "Ulm"}{', "Ulm", "[" * 100_000, "9" * 5000])
def test_arguments_that_are_not_whole_json(arguments: str) -> None:
    for tools in (None, TOOLS):
        with pytest.raises(ValueError, match="the arguments are not whole JSON"):
            function(arguments).parse(tools)


@pytest.mark.parametrize("reference", ["http://127.0.0.1:1/schema.json", "file:///etc/hostname", "elsewhere.json"])
def test_a_schema_never_fetches(reference: str) -> None:
    peers.load("jsonschema_rs")
    tools = [{"type": "function", "function": {"name": "forecast", "parameters": {"$ref": reference}}}]
    with pytest.raises(ValueError, match="no usable JSON Schema"):
        function("{}").parse(tools)


def test_odd_schemas() -> None:
    peers.load("jsonschema_rs")

    def parse(schema: Any) -> Any:
        return function("7").parse([{"type": "function", "function": {"name": "forecast", "parameters": schema}}])

    assert parse(True) == parse({}) == parse(None) == 7
    with pytest.raises(ValueError, match="the whole breaks a schema that nothing fits"):
        parse(False)
    with pytest.raises(ValueError, match="no usable JSON Schema"):
        parse({"type": "strange"})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", None),
        (" \n", None),
        ("{", {}),
        ('{"ci', {}),
        ('{"city":', {}),
        ('{"city":"Ul', {"city": "Ul"}),
        ('{"city":"Ulm","days":[1,2', {"city": "Ulm", "days": [1, 2]}),
        ('{"city":"Ulm"}', {"city": "Ulm"}),
    ],
)
def test_partial(arguments: str, expected: Any) -> None:
    peers.load("jiter")
    assert function(arguments).parse_partial() == expected


def test_partial_of_what_is_no_json() -> None:
    peers.load("jiter")
    with pytest.raises(ValueError, match=r"^the arguments do not begin as JSON \(6 characters\)$"):
        function("secret").parse_partial()


def test_absent_peers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jiter", None)
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ImportError, match=r"pip install deltafold\[partial\]"):
        function("{").parse_partial()
    with pytest.raises(ImportError, match=r"pip install deltafold\[schema\]"):
        function("{}").parse(TOOLS)
    assert function("{}", "no_parameters").parse(TOOLS) == {}


# result(as_type=…)

STREAM = sse(
    {"id": "chatcmpl-t", "created": 1, "model": "m"} | chunk({"content": "hi", "odd": 1}),
    chunk({}, finish_reason="stop") | {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
)


def merged(backend: Backend) -> Any:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(STREAM)
    accumulator.close()
    return accumulator


def test_into_pydantic(backend: Backend) -> None:
    pydantic = peers.load("pydantic")

    class Usage(pydantic.BaseModel):
        total_tokens: int

    class Completion(pydantic.BaseModel):
        id: str
        usage: Usage

    expected = Completion(id="chatcmpl-t", usage=Usage(total_tokens=3))
    assert merged(backend).result(Completion) == expected
    assert merged(backend).result(pydantic.TypeAdapter(Completion)) == expected
    with pytest.raises(pydantic.ValidationError):
        backend.ChatCompletionAccumulator().result(Completion)


def test_into_msgspec(backend: Backend) -> None:
    msgspec = peers.load("msgspec")
    usage = msgspec.defstruct("Usage", [("total_tokens", int)])
    completion = msgspec.defstruct("Completion", [("id", str), ("usage", usage)])
    expected = completion("chatcmpl-t", usage(3))
    assert merged(backend).result(completion) == expected
    assert merged(backend).result(msgspec.json.Decoder(completion)) == expected
    with pytest.raises(msgspec.ValidationError):
        backend.ChatCompletionAccumulator().result(completion)


@pytest.mark.parametrize("bad", [dict, int, bytes, "Completion", 0, object()])
def test_into_anything_else(backend: Backend, bad: Any) -> None:
    with pytest.raises(TypeError, match="as_type must be"):
        merged(backend).result(as_type=bad)


def test_without_a_type_it_is_a_dict(backend: Backend) -> None:
    accumulator = merged(backend)
    assert accumulator.result(None) == accumulator.result(as_type=None) == accumulator.result()
    assert type(accumulator.result()) is dict
    code = (
        f"import sys, deltafold._{backend.name} as implementation\n"
        "implementation.ChatCompletionAccumulator().result()\n"
        "assert 'deltafold._typed' not in sys.modules, 'loaded before it is used'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
