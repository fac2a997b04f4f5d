"""One tool call as the accumulators hand it out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCall:
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

    def parse(self) -> Any:
        """The arguments as Python objects.

        Raises:
            ValueError: they are not whole JSON: the stream was cut, or the model wrote something else.
        """
        try:
            return json.loads(self.arguments)
        except ValueError as error:
            at = getattr(error, "pos", 0)
            raise ValueError(f"the arguments are not whole JSON (at character {at} of {len(self.arguments)})") from None
