"""Convert lines of JSON objects to Arrow tables, in a time proportional to their bytes whatever the lines contain.

Each line is read by itself: it is an object of known columns, or a row of nulls. Arrow is several times faster than a
loop, but reads a block of lines as one stream of values. So Arrow gets the block only if every line is surely one
value, and its result is used only if it is what the loop would give. Otherwise a loop rewrites each line in plain form,
and Arrow reads those lines.
"""

import re
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

MAX_DEPTH: Final = 400
"""A line with deeper nesting is not an object: its reader needs a stack frame per level."""

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET: Final = re.compile(rb"[\[{]+|[\]}]+")
_Int16: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)]
_Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: Final[dict[pa.DataType, Any]] = {
    pa.int16(): _Int16 | None,
    pa.int32(): _Int32 | None,
    pa.int64(): _Int64 | None,
    pa.float64(): float | None,
    pa.string(): str | None,
    pa.list_(pa.int64()): list[_Int64 | None] | None,
}
"""The types of columns, and the values that fit them."""

_NOT_JSON: Final = (b"NaN", b"Inf")
"""Numbers that Arrow reads although JSON does not have them."""


class ObjectLines:
    """A reader of lines for one schema.

    Keys that the schema does not name are ignored. If a key is there twice, the last value counts. A value that does
    not fit its column makes the whole line invalid.

    Args:
        schema: the columns, of the types in ``_TYPES``.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parsing = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        self._floats = [field.name for field in schema if pa.types.is_floating(field.type)]
        fields = [(field.name, _TYPES[field.type], None) for field in schema]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Line", fields, omit_defaults=True)).decode
        self._encode = msgspec.json.Encoder().encode

    def parse(self, lines: bytes) -> pa.Table:
        """Return one row per line that is not blank, of nulls if the line is not an object of the schema."""
        table = self._read_plain(lines)
        if table is None:
            rows = [self._restate(line) for line in lines.split(b"\n") if line.strip()]
            table = self._read(b"\n".join(rows)) if rows else self._schema.empty_table()
        return table.select(self._schema.names)

    def _read_plain(self, lines: bytes) -> pa.Table | None:
        """Return what Arrow reads; None if a loop might read something else."""
        count = _count_objects(lines)
        if not count or any(word[:1] in lines and word in lines for word in _NOT_JSON):  # one letter is found faster
            return None
        try:
            table = self._read(lines)
        except pa.ArrowInvalid:
            return None
        finite = all(pc.all(pc.is_finite(table[name])).as_py() is not False for name in self._floats)
        return table if len(table) == count and finite else None

    def _read(self, lines: bytes) -> pa.Table:
        reading = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        return pj.read_json(pa.BufferReader(lines), reading, self._parsing)

    def _restate(self, line: bytes) -> bytes:
        """Return the line in plain form, with known keys only; an empty object if it is not an object of the schema."""
        try:
            if line.isascii() or line.decode():
                return b"{}" if _is_deep(line) else self._encode(self._decode(line))
        except ValueError:  # msgspec's errors and those of UTF-8
            pass
        return b"{}"


def _count_objects(lines: bytes) -> int | None:
    """Count the lines; None if a line may be something other than one whole value in plain form.

    If all lines begin with ``{`` and end with ``}``, no value continues from one line to the next: within a value, a
    comma would be between these two brackets. So as many values as lines means one value per line. Arrow ends the whole
    process at a null in the place of the first object.
    """
    content = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(content == ord("\n"))
    if len(content) and content[-1] != ord("\n"):
        ends = np.append(ends, len(content))
    starts = np.concatenate(([0], ends[:-1] + 1))[: len(ends)]
    if not len(ends) or not ((content[starts] == ord("{")) & (content[ends - 1] == ord("}"))).all():
        return None
    for line in np.flatnonzero(ends - starts > MAX_DEPTH).tolist():
        if _opening(lines, int(starts[line]), int(ends[line])) > MAX_DEPTH:
            return None
    try:
        return len(ends) if lines.isascii() or lines.decode() else None
    except UnicodeDecodeError:
        return None


def _opening(lines: bytes, start: int, end: int) -> int:
    return lines.count(b"[", start, end) + lines.count(b"{", start, end)


def _is_deep(line: bytes) -> bool:
    """Return whether brackets outside strings are nested more deeply than ``MAX_DEPTH``."""
    if len(line) <= MAX_DEPTH or _opening(line, 0, len(line)) <= MAX_DEPTH:
        return False
    depth = deepest = 0
    for match in _BRACKET.finditer(_STRING.sub(b"", line)):
        run = match.group()
        depth += len(run) if run[0] in b"[{" else -len(run)
        deepest = max(deepest, depth)
    return deepest > MAX_DEPTH
