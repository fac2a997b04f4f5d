"""The merged result in a type of the caller's, by that type's own decoder."""

from __future__ import annotations

from typing import Any

from ._backend import ChatCompletionAccumulator


def result_as(accumulator: ChatCompletionAccumulator, as_type: Any) -> Any:
    """``result_json()`` decoded into a pydantic model or a msgspec struct.

    Args:
        as_type: a ``pydantic.BaseModel`` or ``msgspec.Struct`` class; or a ready ``pydantic.TypeAdapter`` or
            ``msgspec.json.Decoder``, which may stand for any type that these know.

    Raises:
        TypeError: ``as_type`` is none of these.
        ValueError: pydantic's or msgspec's own ``ValidationError``: the result does not fit the type.
    """
    for decoder in ("model_validate_json", "validate_json", "decode"):
        decode = getattr(as_type, decoder, None)
        if callable(decode):
            return decode(accumulator.result_json())
    if isinstance(as_type, type) and hasattr(as_type, "__struct_fields__"):
        from msgspec import json

        return json.decode(accumulator.result_json(), type=as_type)
    raise TypeError(f"as_type must be a pydantic model, a msgspec struct or a decoder of theirs, not {as_type!r}")
