"""The merged result in a type of the caller's, by that type's own decoder."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Adapter(Protocol[T_co]):
    """A ``pydantic.TypeAdapter``."""

    def validate_json(self, data: bytes, /) -> T_co: ...


class Decoder(Protocol[T_co]):
    """A ``msgspec.json.Decoder``."""

    def decode(self, buf: bytes, /) -> T_co: ...


def decoded(result_json: bytes, as_type: Any) -> Any:
    """What ``ChatCompletionAccumulator.result`` gives for a type."""
    if not isinstance(as_type, type):
        for name in ("validate_json", "decode"):
            decode = getattr(as_type, name, None)
            if callable(decode):
                return decode(result_json)
    elif callable(decode := getattr(as_type, "model_validate_json", None)):
        return decode(result_json)
    elif hasattr(as_type, "__struct_fields__"):
        from msgspec import json

        return json.decode(result_json, type=as_type)
    raise TypeError(f"as_type must be a pydantic model, a msgspec struct or a decoder of theirs, not {as_type!r}")
