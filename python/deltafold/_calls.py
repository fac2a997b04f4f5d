"""One tool call as the accumulators hand it out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ._errors import escape
from ._types import Shown


@dataclass(frozen=True, slots=True, repr=False)
class ToolCall(Shown):
    """A tool call of a message (OpenAI's Chat Completions reference, ``message.tool_calls``).

    Attributes:
        id: the call's id; None when the server sent none.
        type: ``function`` or ``custom``.
        name: the tool's name; None when none came.
        arguments: the text the tool is given, as it came so far: JSON for a function, free text for a custom tool.
    """

    id: str | None
    type: str
    name: str | None
    arguments: str

    def parse(self, tools: Iterable[Mapping[str, Any]] | None = None) -> Any:
        """The arguments as Python objects.

        Args:
            tools: the request's ``tools``. With them the name must be one that was offered, and the arguments must fit that
                function's ``parameters`` (JSON Schema; needs ``deltafold[schema]``). A custom tool's text is returned as it is.

        Raises:
            ValueError: the arguments are not whole JSON (the stream was cut, or the model wrote something else); no such tool
                was offered; or they do not fit. The message says where in the arguments, and repeats nothing of them: a name
                that is not in the schema is ``*``.
            ImportError: ``tools`` has a schema, and jsonschema-rs is not installed.

        Example:
            >>> ToolCall("call_1", "function", "look_up", '{"query": "delta"}').parse()
            {'query': 'delta'}
        """
        if tools is None:
            return self._whole()
        offered = self._offered(tools)
        if self.type == "custom":
            return self.arguments
        value = self._whole()
        schema = offered.get("parameters")
        if schema is not None:
            check(value, schema)
        return value

    def parse_partial(self) -> Any:
        """The arguments so far as Python objects, for showing a call while it is written; None before anything can be told.

        Unfinished members are left out, an unfinished string at the end is given as it is so far. Never run a call on this.

        Raises:
            ValueError: what came cannot be the beginning of JSON.
            ImportError: jiter is not installed (``deltafold[partial]``).
        """
        try:
            from jiter import from_json
        except ImportError as error:
            raise ImportError("parse_partial() needs jiter: pip install deltafold[partial]") from error
        if not self.arguments.strip(" \t\n\r"):
            return None
        try:
            return from_json(self.arguments.encode(), partial_mode="trailing-strings")
        except ValueError:
            raise ValueError(f"the arguments do not begin as JSON ({len(self.arguments)} characters)") from None

    def _whole(self) -> Any:
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError) as error:
            at = getattr(error, "pos", 0)
            raise ValueError(f"the arguments are not whole JSON (at character {at} of {len(self.arguments)})") from None

    def _offered(self, tools: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The definition of this tool in a request."""
        kind = "custom" if self.type == "custom" else "function"
        for tool in tools:
            definition = tool.get(kind)
            if isinstance(definition, Mapping) and definition.get("name") == self.name and self.name:
                return definition
        raise ValueError(f"no {kind} tool of this name was offered: '{escape(self.name or '')}'")


def check(value: Any, schema: Any) -> None:
    """Raises ValueError when ``value`` does not fit the JSON Schema; a ``$ref`` to elsewhere is never fetched."""
    try:
        import jsonschema_rs
    except ImportError as error:
        raise ImportError("checking arguments needs jsonschema-rs: pip install deltafold[schema]") from error
    try:
        validator = jsonschema_rs.validator_for(schema, retriever=refuse)
    except ValueError as error:
        raise ValueError(f"the tool's parameters are no usable JSON Schema: {escape(first_line(error))}") from None
    try:
        found = next(iter(validator.iter_errors(value)), None)
    except UnicodeEncodeError:  # it holds the text
        raise ValueError("the arguments hold half a surrogate pair") from None
    if found is not None:
        spelled = json.dumps(schema)
        path = "".join(f"/{shown_step(step, spelled)}" for step in found.instance_path)
        rule = found.schema_path[-1] if found.schema_path else "a schema that nothing fits"
        raise ValueError(f"the arguments do not fit: {escape(path) or 'the whole'} breaks {rule}")


def shown_step(step: str | int, spelled: str) -> str:
    """A step of a path as in a JSON pointer; ``*`` for a name that is not the schema's but the model's own."""
    if isinstance(step, int):
        return str(step)
    return step.replace("~", "~0").replace("/", "~1") if json.dumps(step) in spelled else "*"


def refuse(uri: str) -> Any:
    """Validating must not make requests, whoever wrote the schema."""
    raise ValueError("a reference outside the schema")


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
