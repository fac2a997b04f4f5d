"""One JSON payload → Python values; knows nothing of OpenAI.

The grammar is RFC 8259 plus the words ``NaN``, ``Infinity`` and ``-Infinity``. ``_read`` is the definition: an
iterative reader that decides every odd case, and where a text stops being JSON. It is slow, so ``parse`` first asks
orjson (when it is installed) and then the standard library, each only where its answer is the same:

* orjson reads integers beyond 64 bits as floats: a run of 19 digits keeps a text from it. It refuses the words,
  surrogate halves and ``1e400``, which the standard library takes.
* The standard library keeps surrogate halves, as the merger needs them in values; in keys they are replaced.
  It refuses integers longer than the interpreter's own limit, which a user may have changed.
* Neither counts depth: a text with more brackets than ``max_depth`` is measured first. Both give up on a stack's end.

Whatever they refuse ``_read`` reads again, and it alone names the fault.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn

try:
    import orjson
except ModuleNotFoundError:
    orjson = None  # type: ignore[assignment]

__all__ = [
    "MAX_INTEGER_DIGITS", "Bad", "TooDeep", "clean", "compact", "dumps", "elements", "fingerprint", "members", "pairs",
    "parse", "plain", "size",
]  # fmt: skip

MAX_INTEGER_DIGITS = 4300


class Bad(ValueError):
    """The text is no JSON: the token at byte ``at`` cannot stand there, or is an integer of more than 4,300 digits."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        super().__init__(f"not JSON at byte {at}")
        self.at = at


class TooDeep(ValueError):
    """The bracket at byte ``at`` opens one container too many inside each other."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        super().__init__(f"too deep at byte {at}")
        self.at = at


def parse(text: str, max_depth: int) -> tuple[Any, int]:
    """The value of a JSON text, and how many ``NaN``, ``Infinity``, ``-Infinity`` it has (overridden members too).

    Of equal keys the first place and the last value count. Integers are exact, ``-0`` is 0, ``1e400`` is ``inf``.
    Strings keep surrogate halves, keys have U+FFFD for them. Raises ``Bad`` or ``TooDeep`` (the outermost container
    has depth 1), whichever comes first in the text.

    >>> parse('{"a": [1, NaN], "b": 2, "a": 3}', 128)
    ({'a': 3, 'b': 2}, 1)
    """
    marks = text.encode("utf-8", "replace").translate(_MARKS)
    if marks.count(b"[") > max_depth and _depth(text) > max_depth:
        return _read(text, max_depth)
    if orjson is not None and _LONG_FOR_ORJSON not in marks:
        try:
            return orjson.loads(text), 0
        except ValueError:
            pass
    if len(marks) > MAX_INTEGER_DIGITS and _TOO_LONG in marks:
        return _read(text, max_depth)
    halves = "\\ud" in text or "\\uD" in text
    try:
        if halves or "NaN" in text or "Infinity" in text:
            return _decode_with_words(text, halves)
        return _decode(text), 0
    except (ValueError, RecursionError):
        return _read(text, max_depth)


_MARKS = bytes.maketrans(b"123456789{", b"000000000[")
_LONG_FOR_ORJSON = b"0" * 19
_TOO_LONG = b"0" * (MAX_INTEGER_DIGITS + 1)
_decode = json.JSONDecoder().decode


def _decode_with_words(text: str, halves: bool) -> tuple[Any, int]:
    words: list[float] = []

    def word(name: str) -> float:
        words.append(float(name))
        return words[-1]

    decoder = json.JSONDecoder(parse_constant=word, object_pairs_hook=_clean_keys if halves else None)
    return decoder.decode(text), len(words)


def _clean_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {clean(key)[0]: value for key, value in pairs}


def _depth(text: str) -> int:
    """How deep a text is nested, if it is JSON; else any number."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    brackets = "".join(text.split('"')[::2]).encode("utf-8", "replace").translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


_NO_BRACKETS = bytes(i for i in range(256) if i not in b"[]{}")
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _read(text: str, max_depth: int) -> tuple[Any, int]:
    """``parse`` by the book: one token after the other, no recursion."""
    words = 0
    stack: list[tuple[Any, str]] = []  # the containers around the innermost one, each with the key it waits at
    inner: Any = None
    key = ""
    at = _white(text, 0)
    while True:
        first = text[at : at + 1]
        value: Any
        if first == '"':
            value, at = _string(text, at)
        elif first == "{" or first == "[":
            if (0 if inner is None else len(stack) + 1) >= max_depth:
                raise TooDeep(_bytes(text, at))
            if inner is not None:
                stack.append((inner, key))
            inner = {} if first == "{" else []
            at = _white(text, at + 1)
            if text[at : at + 1] != ("}" if first == "{" else "]"):
                if first == "{":
                    key, at = _key(text, at)
                continue
            value = inner
            inner, key = stack.pop() if stack else (None, "")
            at += 1
        elif number := _NUMBER.match(text, at):
            value = float(number[0]) if number[1] or number[2] else _integer(text, at, number[0])
            at = number.end()
        elif found := _WORD.match(text, at):
            value = _WORDS[found[0]]
            words += isinstance(value, float)
            at = found.end()
        else:
            _bad(text, at)
        while True:
            at = _white(text, at)
            if inner is None:
                if at < len(text):
                    _bad(text, at)
                return value, words
            mark = text[at : at + 1]
            if isinstance(inner, dict):
                inner[key] = value
                if mark == ",":
                    key, at = _key(text, _white(text, at + 1))
                    break
                if mark != "}":
                    _bad(text, at)
            else:
                inner.append(value)
                if mark == ",":
                    at = _white(text, at + 1)
                    break
                if mark != "]":
                    _bad(text, at)
            value = inner
            inner, key = stack.pop() if stack else (None, "")
            at += 1


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"null|true|false|NaN|-?Infinity")
_WORDS: dict[str, bool | float | None] = {"null": None, "true": True, "false": False}
_WORDS |= {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}
_BLOCK = 600  # digits; no interpreter's limit is below 640


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        _bad(text, at)
    key, at = _string(text, at)
    at = _white(text, at)
    if text[at : at + 1] != ":":
        _bad(text, at)
    return clean(key)[0], _white(text, at + 1)


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        return scanstring(text, at + 1, True)  # type: ignore[no-any-return]
    except json.JSONDecodeError:
        _bad(text, at)


def _integer(text: str, at: int, digits: str) -> int:
    sign, digits = (-1, digits[1:]) if digits[0] == "-" else (1, digits)
    if len(digits) > MAX_INTEGER_DIGITS:
        _bad(text, at)
    value = 0
    for start in range(0, len(digits), _BLOCK):
        block = digits[start : start + _BLOCK]
        value = value * 10 ** len(block) + int(block)
    return sign * value


def _white(text: str, at: int) -> int:
    while text[at : at + 1] in _SPACES:
        at += 1
    return at


_SPACES = frozenset(" \t\n\r")


def _bad(text: str, at: int) -> NoReturn:
    raise Bad(_bytes(text, at))


def _bytes(text: str, at: int) -> int:
    return len(text[:at].encode("utf-8", "surrogatepass"))


def clean(text: str) -> tuple[str, int]:
    """``text`` with surrogate halves joined where two make a pair and U+FFFD for each that is alone; how many were.

    >>> clean("\\ud83d\\ude00 \\ud83d")
    ('😀 \ufffd', 1)
    """
    try:
        text.encode()
        return text, 0
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return _HALF.subn("\ufffd", joined)


_HALF = re.compile("[\ud800-\udfff]")


def compact(text: str) -> str:
    """A JSON text without the white space outside its strings; every other character stays as it is.

    >>> compact('{ "a b": [1.50, 2] }')
    '{"a b":[1.50,2]}'
    """
    if "\\" in text:
        return _STRING_OR_SPACE.sub(r"\1", text)
    parts = text.split('"')
    outside = "".join(parts[::2])
    if outside.translate(_NO_SPACE) == outside:
        return text
    parts[::2] = [part.translate(_NO_SPACE) for part in parts[::2]]
    return '"'.join(parts)


# A string without its end still matches, so that no quote is tried twice.
_STRING_OR_SPACE = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z))|[ \t\n\r]+', re.DOTALL)
_NO_SPACE = dict.fromkeys(map(ord, " \t\n\r"))


def members(text: str, start: int = 0) -> dict[str, tuple[int, int]]:
    """Where the values are of the object that begins at ``start`` of a valid text, after white space: the span in
    characters for each key, of equal keys the first place and the last value.

    >>> text = '{"a": [1, 2], "b": "x"}'
    >>> members(text)
    {'a': (6, 12), 'b': (19, 22)}
    """
    return {key: (at, end) for key, _, at, end in pairs(text, start)}


def pairs(text: str, start: int = 0) -> list[tuple[str, int, int, int]]:
    """As ``members``, but every pair as it stands there: its key, where that begins, and the span of its value.

    >>> pairs('{"a": 1, "a": "x"}')
    [('a', 1, 6, 7), ('a', 9, 14, 17)]
    """
    found: list[tuple[str, int, int, int]] = []
    at = _white(text, _white(text, start) + 1)
    while text[at] != "}":
        begin = at
        key, at = scanstring(text, at + 1, True)
        at = _COLON.match(text, at).end()  # type: ignore[union-attr]
        end = _skip(text, at)
        found.append((key if key.isascii() else clean(key)[0], begin, at, end))
        at = _COMMA.match(text, end).end()  # type: ignore[union-attr]
    return found


_COLON = re.compile(r"[ \t\n\r]*:?[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,?[ \t\n\r]*")


def elements(text: str, start: int = 0) -> list[tuple[int, int]]:
    """Where the entries are of the array that begins at ``start`` of a valid text, after white space.

    >>> elements('[1, {"a": 2}]')
    [(1, 2), (4, 12)]
    """
    spans: list[tuple[int, int]] = []
    at = _white(text, _white(text, start) + 1)
    while text[at] != "]":
        end = _skip(text, at)
        spans.append((at, end))
        at = _COMMA.match(text, end).end()  # type: ignore[union-attr]
    return spans


def _skip(text: str, at: int) -> int:
    try:
        _, end = _skim(text, at)
        return end  # type: ignore[no-any-return]
    except RecursionError:
        depth = 0
        for token in _STRING_OR_BRACKET.finditer(text, at):
            depth += _STEPS.get(ord(token[0][0]), 0)
            if depth == 0:
                return token.end()
        raise


# Numbers are not converted, which may be slow or refused: the length of their text stands for them.
_skim = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len).scan_once  # type: ignore[attr-defined]
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[][{}]', re.DOTALL)


def plain(text: str) -> bool:
    """Whether ``size`` of this valid text's value, and of every value in it, surely is the length of its compact text:
    nothing is escaped, no number spelled otherwise than Python would, no key given twice in an object.
    """
    if "\\" in text:
        return False
    try:
        _plain(text)
        return True
    except (ValueError, RecursionError):
        return False


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ValueError


def _positive_zero(digits: str) -> None:
    if digits == "-0":
        raise ValueError


def _positional(digits: str) -> None:
    if repr(float(digits)) != digits:
        raise ValueError


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


_plain = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_positive_zero, parse_float=_positional, parse_constant=_refuse
).decode


def size(value: Any) -> int:
    """The length in bytes of ``dumps(value)``."""
    written = _orjson_dumps(value) if orjson is not None else None
    return len(dumps(value).encode()) if written is None else len(written)


def dumps(value: Any) -> str:
    """The canonical text of a value: what ``json.dumps(value, ensure_ascii=False, separators=(",", ":"))`` gives, but
    ``null`` for numbers that are not finite, U+FFFD for surrogate halves, and integers and depth without limit.

    >>> dumps({"a": [1e16, float("nan"), "\\u00e9"]})
    '{"a":[1e+16,null,"é"]}'
    """
    written = _orjson_dumps(value) if orjson is not None else None
    if written is not None:
        return written.decode()
    try:
        return clean(_encode(value))[0]
    except (ValueError, RecursionError):
        return _write(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def _orjson_dumps(value: Any) -> bytes | None:
    try:
        written = orjson.dumps(value, option=_STRICT)  # pyright: ignore[reportOptionalMemberAccess]
    except TypeError:
        return None
    # It spells floats below 1e-4 in its own way, and in some versions those from 1e16 on.
    odd = b"e-" in written or b"0.0000" in written or (_UNSIGNED and _UNSIGNED.search(written))
    return None if odd else written


if orjson is not None:
    _STRICT = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    _UNSIGNED = None if orjson.dumps(1e16) == b"1e+16" else re.compile(rb"[0-9]e[0-9]")


def _write(value: Any, *, words: bool = False, ordered: bool = False) -> str:
    """``dumps`` without recursion and without the interpreter's limit on digits; ``words`` for non-finite numbers,
    sorted keys if ``ordered``."""
    out: list[str] = []
    stack: list[tuple[Any, Iterator[Any]]] = []
    inside: set[int] = set()
    while True:
        if isinstance(value, (dict, list, tuple)):
            if id(value) in inside:
                raise ValueError("a container that holds itself")
            inside.add(id(value))
            children: Iterable[Any] = value
            if isinstance(value, dict):
                children = sorted(value.items()) if ordered else value.items()
            out.append("{" if isinstance(value, dict) else "[")
            stack.append((value, iter(children)))
        elif isinstance(value, int) and not isinstance(value, bool):
            out.append(_digits(value))
        elif isinstance(value, float) and not (words or abs(value) < float("inf")):
            out.append("null")
        else:
            out.append((_encode_sorted if words else _encode)(value))
        while stack:
            container, children = stack[-1]
            if (child := next(children, _END)) is not _END:
                if out[-1] not in ("{", "["):
                    out.append(",")
                if isinstance(container, dict):
                    out += (_encode(child[0]), ":")
                    child = child[1]
                value = child
                break
            out.append("}" if isinstance(container, dict) else "]")
            inside.discard(id(container))
            stack.pop()
        else:
            return clean("".join(out))[0]


_END: Any = object()


def _digits(value: int) -> str:
    if -_LIMIT < value < _LIMIT:
        return int.__repr__(value)
    sign, value = ("-", -value) if value < 0 else ("", value)
    blocks = []
    while value >= _LIMIT:
        value, block = divmod(value, _LIMIT)
        blocks.append(str(block).zfill(_BLOCK))
    return sign + str(value) + "".join(reversed(blocks))


_LIMIT = 10**_BLOCK


def fingerprint(value: Any) -> bytes:
    """16 bytes that two values share exactly when they are of the same types and equal, members in any order:
    1, 1.0 and true differ, so do 0.0 and -0.0; NaN equals NaN; surrogate halves count as U+FFFD.
    """
    try:
        text = clean(_encode_sorted(value))[0]
    except (ValueError, RecursionError):
        text = _write(value, words=True, ordered=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
