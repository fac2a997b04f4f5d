"""Chunk objects as JSON text: what both implementations read when a chunk does not come as bytes.

A pydantic model that writes itself as pydantic does (openai's chunks) is read member by member: what
``model_dump(exclude_unset=True)`` gives, without its warnings about values that no type expected. Any other object is asked for it.
"""

from __future__ import annotations

import json
import re
from typing import Any

HALF = re.compile("[\ud800-\udfff]")
PLAIN = frozenset({str, int, float, bool, type(None)})

_plain_models: dict[type, bool] = {}  # whether a class's members may be read; a program has few classes of chunks


def chunk_text(chunk: Any) -> str:
    """A chunk object as the JSON text that a server might have sent, compact and without needless escapes.

    Raises:
        TypeError: the object is no chunk, or holds what JSON cannot say.
    """
    try:
        text = json.dumps(as_dict(chunk), ensure_ascii=False, separators=(",", ":"), default=as_dict)
    except (ValueError, RecursionError) as error:
        raise TypeError(f"the chunk cannot be written as JSON: {error}") from None
    return text if text.isascii() else HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def as_dict(value: Any) -> dict[str, Any]:
    """The dict behind a chunk, or behind a member of one."""
    if isinstance(value, dict):
        return value
    if is_plain(type(value)):
        return members(value)
    for name, options in (("model_dump", {"exclude_unset": True}), ("to_dict", {})):
        dump = getattr(value, name, None)
        if callable(dump) and not isinstance(value, type):
            dumped = dump(**options)
            if isinstance(dumped, dict):
                return dumped
    raise TypeError(f"a chunk must be a dict or have model_dump() or to_dict(), not {type(value).__name__}")


def members(model: Any) -> dict[str, Any]:
    """The members of a plain model that were set, models within as dicts too."""
    were_set = model.__pydantic_fields_set__
    found = {}
    for name, member in model.__dict__.items():
        if name in were_set:
            found[name] = member if type(member) in PLAIN else within(member)
    if model.__pydantic_extra__:
        for name, member in model.__pydantic_extra__.items():
            found[name] = member if type(member) in PLAIN else within(member)
    return found


def within(value: Any) -> Any:
    """A member that is no plain value. What is neither list, dict nor model is left to the writer of JSON."""
    kind = type(value)
    if kind is list:
        return [member if type(member) in PLAIN else within(member) for member in value]
    if kind is dict:
        return {name: member if type(member) in PLAIN else within(member) for name, member in value.items()}
    return members(value) if is_plain(kind) else value


def is_plain(kind: type) -> bool:
    """``is_plain_model``, looked up."""
    plain = _plain_models.get(kind)
    if plain is None:
        plain = _plain_models[kind] = is_plain_model(kind)
    return plain


def is_plain_model(kind: type) -> bool:
    """Instances are pydantic models whose members are written as they are: no serializers, aliases, exclusions or
    root of their own."""
    fields = getattr(kind, "__pydantic_fields__", None)
    decorators = getattr(kind, "__pydantic_decorators__", None)
    if not isinstance(fields, dict) or decorators is None:
        return False
    if getattr(getattr(kind, "model_dump", None), "__module__", "") != "pydantic.main":
        return False
    if decorators.field_serializers or decorators.model_serializers or decorators.computed_fields:
        return False
    if getattr(kind, "__pydantic_root_model__", False) or getattr(kind, "model_config", {}).get("serialize_by_alias"):
        return False
    return not any(field.exclude or getattr(field, "exclude_if", None) or field.metadata for field in fields.values())
