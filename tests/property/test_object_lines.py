"""Lines of JSON objects: any block of lines gives what each line gives alone, by a plain reader."""

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.tables import object_lines
from metrics.tables.object_lines import MAX_DEPTH, ObjectLines
from tests.examples import examples

COLUMNS = {
    "word": pa.string(),
    "small": pa.int16(),
    "at": pa.int64(),
    "list": pa.list_(pa.int64()),
    "x": pa.float64(),
}
SCHEMA = pa.schema(list(COLUMNS.items()))
NOTHING: dict[str, Any] = dict.fromkeys(SCHEMA.names)
LINES = ObjectLines(SCHEMA)


class _Refused(ValueError):
    """A line that is no object of the schema."""


def refuse(text: str) -> None:
    raise _Refused(text)


def plain(line: bytes) -> dict[str, Any]:
    """A row of the schema by the standard library, one line at a time."""
    try:
        found = json.loads(line.decode(), parse_constant=refuse)
        if not isinstance(found, dict) or depth(found) > MAX_DEPTH:
            raise _Refused
        return {name: value_of(found.get(name), SCHEMA.field(name).type) for name in SCHEMA.names}
    except (ValueError, RecursionError):
        return NOTHING


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def value_of(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind) and isinstance(value, list):
        return [value_of(each, kind.value_type) for each in value]
    if pa.types.is_integer(kind) and type(value) is int and pa.scalar(value, kind) is not None:
        return value
    if pa.types.is_floating(kind) and type(value) in (int, float) and abs(float(value)) != float("inf"):
        return float(value)
    if pa.types.is_string(kind) and isinstance(value, str) and value.encode() is not None:
        return value
    raise _Refused


def reference(lines: bytes) -> list[dict[str, Any]]:
    rows = []
    for line in lines.split(b"\n"):
        if line.strip():
            try:
                rows.append(plain(line))
            except (OverflowError, pa.ArrowInvalid):
                rows.append(NOTHING)
    return rows


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
good = st.fixed_dictionaries(
    {},
    optional={
        "word": st.none() | st.text(max_size=5),
        "small": st.integers(-(2**15), 2**15 - 1),
        "at": st.integers(-(2**63), 2**63 - 1),
        "list": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
        "x": st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False),
        "else": json_values,
    },
)
strange = st.dictionaries(st.sampled_from([*SCHEMA.names, "else", ""]), json_values, max_size=4)
objects = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode(
        errors="replace"
    ),
    good | strange,
    st.booleans(),
)
ODD = [
    b"null", b"{}null{}", b"{}{}", b"{}[]", b"[]", b"{", b"}", b"{}", b" {} ", b"{}\r", b"\xef\xbb\xbf{}",
    b"\x00", b"\x0b",
    b'{"at":1,"at":2}', b'{"else":1,"else":2,"at":3}', b'{"x":NaN}', b'{"x":-Infinity}', b'{"else":NaN,"at":1}',
    b'{"x":1e999}', b'{"else":1e999,"at":1}', b'{"x":1' + b"0" * 400 + b"}", b'{"x":1e-999}', b'{"at":1.0}',
    b"", b'{"at":1e2}', b'{"at":-0}', b'{"at":01}', b'{"at":true}', b'{"list":[true]}', b'{"list":[[1]]}',
    b'{"list":{}}', b'{"word":{}}',
    b'{"word":"\xff"}', b'{"else":"\xff","at":1}', b'{"word":"\\ud800"}', b'{"word":"\\udc00"}', b'{"word":"\\u0000"}',
    b'{"word":"a\x01"}', b'{"word":"null NaN Inf } {"}', b'{"at"', b':1}', b'{"else":[{}', b'{"at":1}]}', b'{"at":1,}',
    b'{"else":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b',"at":1}',
    b'{"else":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b',"at":1}',
    b'{"else":[' + b"[]," * MAX_DEPTH + b'[]],"at":1}', b'{"at":1,"word":"' + b"[{" * MAX_DEPTH + b'\\""}',
    b'{"else":' + b"[" * 5000, b"[" * 5000,
]  # fmt: skip
anything = st.one_of(objects, objects, objects, st.sampled_from(ODD), st.binary(max_size=6))


@given(st.lists(anything, max_size=8), st.sampled_from([b"\n", b""]))
@settings(max_examples=examples(1500), deadline=None)
def test_a_block_is_what_its_lines_are_alone(lines: list[bytes], end: bytes) -> None:
    block = b"\n".join(lines) + end
    table = LINES.parse(block)
    table.validate(full=True)
    assert table.schema == SCHEMA
    assert table.to_pylist() == reference(block)


@pytest.mark.parametrize("line", ODD, ids=lambda line: re.sub(r"\W", ".", repr(line[:20])))
@pytest.mark.parametrize("others", [b"", b'{"at":5}', b"junk"])
def test_an_odd_line_is_read_alike_among_any_others(line: bytes, others: bytes) -> None:
    for block in (b"\n".join((others, line, others)), b"\n".join((line, others))):
        assert LINES.parse(block).to_pylist() == reference(block)


def test_every_line_of_junk_is_looked_at_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are not divided again and again: Arrow is asked at most twice, and each line is written again once."""
    asked = []
    original = object_lines.pj.read_json

    def counted(*given: Any) -> pa.Table:
        asked.append(given)
        return original(*given)

    monkeypatch.setattr(object_lines.pj, "read_json", counted)
    block = b'{"at":1}\n{"at":"x"}\n' * 5000
    assert LINES.parse(block)["at"].null_count == 5000
    assert len(asked) <= 2
