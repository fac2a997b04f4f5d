"""The pure JSON reader, with orjson and without; the Rust one runs the same table in its unit tests."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltafold._pure import json as pure

CASES = Path(__file__).parent / "cases" / "json.tsv"


def unpack(column: str) -> str:
    """The text that a column of the table stands for."""
    runs = (run.partition("*") for run in column.split(" ") if run != "-")
    return b"".join(bytes.fromhex(unit) * int(count or 1) for unit, _, count in runs).decode()


ROWS = [line.split("\t") for line in CASES.read_text("ascii").splitlines() if not line.startswith("#")]


@pytest.fixture(params=["orjson", "stdlib"], autouse=True)
def with_orjson(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "stdlib":
        monkeypatch.setattr(pure, "orjson", None)
    elif pure.orjson is None:
        pytest.skip("orjson is not installed")
    return request.param == "orjson"


@pytest.fixture(params=[640, 4300, 0])
def digits_limit(request: pytest.FixtureRequest) -> Any:
    if not hasattr(sys, "set_int_max_str_digits"):
        pytest.skip("this interpreter has no limit")
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(request.param)
    yield request.param
    sys.set_int_max_str_digits(before)


def verdict(text: str, max_depth: int = 128, read: Any = pure.parse) -> str:
    try:
        read(text, max_depth)
        return "ok"
    except pure.Bad as fault:
        return f"bad {fault.at}"
    except pure.TooDeep as fault:
        return f"deep {fault.at}"


def value(text: str) -> Any:
    return pure.parse(text, 128)[0]


@pytest.mark.parametrize(("wanted", "text", "canonical"), [row[:3] for row in ROWS], ids=[row[3] for row in ROWS])
def test_cases(wanted: str, text: str, canonical: str) -> None:
    text = unpack(text)
    assert verdict(text) == wanted
    assert verdict(text, read=pure._read) == wanted
    if wanted == "ok":
        canonical = text if canonical == "=" else unpack(canonical)
        assert pure.dumps(value(text)) == canonical
        assert pure._write(value(text)) == canonical
        assert pure.size(value(text)) == len(canonical.encode())
        assert same(pure._read(text, 128), pure.parse(text, 128))


def test_case_names_are_unique() -> None:
    assert len({row[3] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("digits", [18, 19, 20, 599, 600, 601, 640, 641, 1200, 4299, 4300])
@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_are_exact_whatever_the_interpreters_limit(digits: int, sign: str, digits_limit: int) -> None:
    for first, rest in (("1", "0"), ("9", "9"), ("7", "1")):
        token = sign + first + rest * (digits - 1)
        number = value(f"[{token}]")[0]
        exact = int(first) * 10 ** (digits - 1) + int(rest) * ((10 ** (digits - 1) - 1) // 9)
        assert type(number) is int
        assert number == (-exact if sign else exact)
        assert pure.dumps({"n": [number]}) == f'{{"n":[{token}]}}'
        assert pure.size(number) == len(token)
        assert pure.members(f'{{"n":{token}}}') == {"n": (5, 5 + len(token))}
        assert pure.plain(token)
        assert pure.fingerprint(number) != pure.fingerprint(number + 1)
    assert sys.get_int_max_str_digits() == digits_limit


def test_4301_digits_are_refused_whatever_the_interpreters_limit(digits_limit: int) -> None:
    assert verdict("[" + "1" * 4301 + "]") == "bad 1"
    assert verdict("[" + "1" * 4301 + ".0]") == "ok"
    assert verdict('["' + "1" * 4301 + '"]') == "ok"


@pytest.mark.parametrize("levels", [1, 2, 127, 128, 129, 1023, 1024, 1025, 3000, 30_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"\\n":', "}]")])
def test_depth(levels: int, opening: str, closing: str) -> None:
    step = 2 if "[{" in opening else 1
    text = opening * (levels // step) + "1" + closing * (levels // step)
    depth = levels // step * step
    assert verdict(text, max(depth, 1)) == "ok"
    if depth > 1:
        assert verdict(text, depth - 1).startswith("deep")
        nested = pure.parse(text, depth)[0]
        assert pure.dumps(nested) == text
        assert pure.size(nested) == len(text)
        assert len(pure.fingerprint(nested)) == 16
        spans = list(pure.members(text).values()) if opening[0] == "{" else pure.elements(text)
        assert spans == [(len(opening.lstrip("[")) if opening[0] == "{" else 1, len(text) - 1)]


def test_a_million_levels_take_linear_time() -> None:
    assert verdict("[" * 1_000_000, 2_000_000) == "bad 1000000"
    assert verdict("[" * 1_000_000, 999_999) == "deep 999999"


@pytest.mark.parametrize(
    "unit", ['"\\"', '["\\\\', '"', "[", "{", '{"a":[', "\\", '\\"', " ", "[1,", '"\\u', "-", "1", "1.", "1e"]
)
def test_hostile_repeats_take_linear_time(unit: str) -> None:
    text = unit * 200_000
    verdict(text)
    verdict('"' + text)
    assert isinstance(pure.compact('["' + text), str)


def test_words_are_counted() -> None:
    number, words = pure.parse('{"a":[NaN,-Infinity,1e400],"a":Infinity,"b":"NaN"}', 9)
    assert (number, words) == ({"a": math.inf, "b": "NaN"}, 3)


def test_values_keep_halves_and_keys_do_not() -> None:
    assert value(r'{"a\ud83d":"\ud83d","b":"x\uDE00"}') == {"a\ufffd": "\ud83d", "b": "x\ude00"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ("", 0)),
        ("é\u2028\0\x7f", ("é\u2028\0\x7f", 0)),
        ("\ud83d", ("\ufffd", 1)),
        ("\ud83d\ude00", ("😀", 0)),
        ("\ude00\ud83d", ("\ufffd\ufffd", 2)),
        ("\ud83d\ud83d\ude00\ude00", ("\ufffd😀\ufffd", 2)),
        ("a\ud83db😀\udfff", ("a\ufffdb😀\ufffd", 2)),
        ("\ufffd\ud800", ("\ufffd\ufffd", 1)),
    ],
)
def test_clean(text: str, wanted: tuple[str, int]) -> None:
    assert pure.clean(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1", "1"),
        (' { "a b" : [ 1.50 ,\t2 ] }\r\n', '{"a b":[1.50,2]}'),
        (r'[ "\" ", "\\" , " \\\" " ]', r'["\" ","\\"," \\\" "]'),
        (' [ "\\u0020" ] ', '["\\u0020"]'),
        ('["\u00a0\u2028\u3000"]', '["\u00a0\u2028\u3000"]'),
    ],
)
def test_compact(text: str, wanted: str) -> None:
    assert pure.compact(text) == wanted


def test_members_and_elements() -> None:
    text = ' { "a" : [1, 2] ,"b":"\\"}", "\\u0061": {"a": 3} ,"c\\ud800":-1.5e3} '
    spans = pure.members(text)
    assert {key: text[start:end] for key, (start, end) in spans.items()} == {
        "a": '{"a": 3}', "b": '"\\"}"', "c\ufffd": "-1.5e3",
    }  # fmt: skip
    assert list(spans) == ["a", "b", "c\ufffd"]
    start = text.index("[")
    assert [text[slice(*span)] for span in pure.elements(text, start)] == ["1", "2"]
    assert pure.members(text, text.index("{", start)) == {"a": (text.index("3}"), text.index("3}") + 1)}
    assert (pure.members(" { } "), pure.elements("[\n]")) == ({}, [])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a": [1, 1.5, "é", null, true]}', True),
        ("[1e-05,1e+16,0.0001,-0.0]", True),
        ("12345678901234567890123", True),
        ("[1.50]", False),
        ("[1e5]", False),
        ("[-0]", False),
        ("[0.00001]", False),
        ("[NaN]", False),
        ("[1e400]", False),
        ("[1234567890.12345678901]", False),
        (r'["\u00e9"]', False),
        ('[{"a":1,"b":2,"a":3}]', False),
        ('[{"a":1},{"a":1}]', True),
    ],
)
def test_plain(text: str, wanted: bool) -> None:
    assert pure.plain(text) is wanted


@pytest.mark.parametrize(
    ("thing", "wanted"),
    [
        ([1e-5, 1e16, 1e22, 1.5e-7, 0.0001, 100000.0, -0.0], "[1e-05,1e+16,1e+22,1.5e-07,0.0001,100000.0,-0.0]"),
        ([math.nan, math.inf, -math.inf], "[null,null,null]"),
        ({"a": {}, "b": [], "c": [[]], "d": True}, '{"a":{},"b":[],"c":[[]],"d":true}'),
        (
            '\0\x08\t\n\x0b\x0c\r\x1b\x1f"\\/\x7f\u2028é😀',
            '"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001b\\u001f\\"\\\\/\x7f\u2028é😀"',
        ),
        (["\ud83d", "\ude00", "\ud83d\ude00"], '["\ufffd","\ufffd","😀"]'),
        ({"\ud83d": math.nan}, '{"\ufffd":null}'),
        ([2**64, -(2**70)], "[18446744073709551616,-1180591620717411303424]"),
        ((1, ("[", "{")), '[1,["[","{"]]'),
    ],
)
def test_dumps(thing: Any, wanted: str) -> None:
    assert pure.dumps(thing) == wanted
    assert pure._write(thing) == wanted
    assert pure.size(thing) == len(wanted.encode())


def test_dumps_refuses_a_container_that_holds_itself() -> None:
    thing: list[Any] = []
    thing.append([thing])
    with pytest.raises(ValueError, match="holds itself"):
        pure.dumps(thing)
    twice: list[Any] = [1]
    assert pure._write([twice, twice]) == "[[1],[1]]"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-0", "0"), ("1.0", "1e0"), ("NaN", "[NaN]"), ("1e400", "Infinity"), ('"a"', r'"\u0061"'), (r'"\ud800"', '"\ufffd"'),
        ('{"a":1,"b":[2]}', '{"b":[ 2 ],"a":1}'), ('[{"x":{"p":1,"q":2}}]', '[{"x":{"q":2,"p":1}}]'),
    ],
)  # fmt: skip
def test_fingerprints_of_equal_values(one: str, other: str) -> None:
    left, right = value(one), value(other)
    right = right[0] if one == "NaN" else right
    assert pure.fingerprint(left) == pure.fingerprint(right)


def test_fingerprints_of_values_that_differ() -> None:
    texts = [
        "0", "1", "1.0", "-1", "-0.0", "0.0", "true", "false", "null", "NaN", "Infinity", "-Infinity", '"1"', '""', '"NaN"', '"a"',
        "[]", "{}", "[1]", "[[1]]", "[1,2]", "[2,1]", "[[1],2]", "[[],[]]", '{"a":1}', '{"a":2}', '{"b":1}', '{"a":1,"b":2}',
        '{"a":2,"b":1}', '["a",1]', "18446744073709551616", "18446744073709551617", "18446744073709551616.0",
    ]  # fmt: skip
    assert len({pure.fingerprint(value(text)) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "thing", [{"b": [1, math.nan, "\ud800"], "a": {"d": 1.5, "c": -math.inf}}, 10**700, [10**700, {"b": 1, "a": 2}]]
)
def test_a_fingerprint_is_one_however_it_was_made(thing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = pure.fingerprint(thing)

    def refuse(_: Any) -> str:
        raise RecursionError

    encode = pure._encode_sorted
    monkeypatch.setattr(
        pure, "_encode_sorted", lambda value: refuse(value) if isinstance(value, (dict, list)) else encode(value)
    )
    assert pure.fingerprint(thing) == before


def same(one: Any, other: Any) -> bool:
    """Equal in types, values and order, NaN included."""
    return type(one) is type(other) and repr(one) == repr(other)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["[", "{", '"', "a:b"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
SPACES = st.sampled_from(["", "", " ", "\n", "\t \r"])


@st.composite
def spelled(draw: st.DrawFn, values: st.SearchStrategy[Any] = VALUES) -> tuple[Any, str]:
    """A value and one of the ways to spell it."""

    def spell(value: Any) -> str:
        space = draw(SPACES)
        if isinstance(value, dict):
            members = [f"{spell(key)}:{draw(SPACES)}{spell(child)}" for key, child in value.items()]
            return "{" + space + f",{space}".join(members) + space + "}"
        if isinstance(value, list):
            return "[" + f"{space},".join(map(spell, value)) + space + "]"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    value = draw(values)
    return value, draw(SPACES) + spell(value) + draw(SPACES)


@given(VALUES)
def test_dumps_and_parse_are_inverse(thing: Any) -> None:
    text = pure.dumps(thing)
    assert text == json.dumps(thing, ensure_ascii=False, separators=(",", ":"))
    assert same(pure.parse(text, 128)[0], thing)
    assert pure._write(thing) == text


@given(spelled())
def test_every_spelling_parses_to_the_value(pair: tuple[Any, str]) -> None:
    thing, text = pair
    assert same(pure.parse(text, 128), (thing, 0))
    assert same(pure._read(text, 128), (thing, 0))
    assert same(pure.parse(pure.compact(text), 128), (thing, 0))


@given(spelled())
def test_spans_hold_the_values(pair: tuple[Any, str]) -> None:
    thing, text = pair
    if isinstance(thing, dict):
        assert same({key: value(text[start:end]) for key, (start, end) in pure.members(text).items()}, thing)
    if isinstance(thing, list):
        assert same([value(text[start:end]) for start, end in pure.elements(text)], thing)


@given(spelled())
def test_plain_texts_have_the_size_of_their_value(pair: tuple[Any, str]) -> None:
    thing, text = pair
    if pure.plain(text):
        assert pure.size(thing) == len(pure.compact(text).encode())


TOKENS = st.sampled_from(
    [
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        '"a"',
        '"a":',
        '{"a":',
        '"',
        "\\",
        "\\u",
        "0",
        "-",
        "-0",
        "1.",
        ".5",
        "1e9",
        "1e400",
        "9" * 19,
        "9" * 4301,
    ]
    + [
        "NaN",
        "Infinity",
        "null",
        "true",
        " ",
        "\n",
        "\0",
        "\x7f",
        "\u2028",
        "\ufeff",
        "é",
        '"\\ud800"',
        '"\\udc00":',
        "\x85",
        "\u0663",
    ]
)


@given(st.lists(TOKENS, max_size=12).map("".join), st.integers(1, 4))
@settings(max_examples=500)
def test_the_fast_ways_agree_with_the_reader(text: str, max_depth: int) -> None:
    assert verdict(text, max_depth) == verdict(text, max_depth, pure._read)
    if verdict(text, max_depth) == "ok":
        assert same(pure.parse(text, max_depth), pure._read(text, max_depth))


@given(st.text(st.characters()))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert verdict(text).split()[0] in ("ok", "bad", "deep")
