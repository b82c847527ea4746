"""Protocol Buffers, to the extent that traces need: messages as dictionaries, by a table of their fields.

A schema maps the number of a field to its name and kind. Fields that a schema does not have are skipped, so that traces
of newer writers can be read. Packed numbers, groups and maps are not needed.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Final, Literal

from msgspec import Struct

from metrics.trace_forms.events import CutOffError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_MOST_VARINT_BYTES: Final = 10


class Field(Struct, frozen=True):
    """A field of a message.

    Attributes:
        name: its key in the dictionary.
        kind: the kind of its value, or the schema of the message in it.
        repeated: whether the value is a list.
        alone: the key instead of ``name`` if a repeated field has exactly one value; "" = there is none.
    """

    name: str
    kind: Literal["int", "bool", "bytes", "text"] | Mapping[int, Field]
    repeated: bool = False
    alone: str = ""

    @property
    def wire_type(self) -> int:
        return _VARINT if self.kind in ("int", "bool") else _BYTES


Schema = Mapping[int, Field]


def decode(data: bytes, schema: Schema) -> dict[str, Any]:
    """Decode a message; absent fields are left out.

    Raises:
        ValueError: it is malformed, or a field has another type than in the schema.
    """
    found: dict[str, Any] = {}
    for number, wire_type, value in _fields(data):
        field = schema.get(number)
        if field is None:
            continue
        if wire_type != field.wire_type:
            raise ValueError(f"field {number} ({field.name}) has wire type {wire_type}")
        plain = _value(field, value)
        if field.repeated:
            found.setdefault(field.name, []).append(plain)
        elif isinstance(plain, dict):
            found[field.name] = found.get(field.name, {}) | plain
        else:
            found[field.name] = plain
    for field in schema.values():
        if field.alone and len(found.get(field.name, ())) == 1:
            [found[field.alone]] = found.pop(field.name)
    return found


def encode(message: Mapping[str, Any], schema: Schema) -> bytes:
    """Encode a message. Values that are None or that the schema does not name are left out."""
    parts = []
    for number, field in schema.items():
        key = _varint(number << 3 | field.wire_type)
        parts += [key + _content(field, value) for value in _values(message, field)]
    return b"".join(parts)


def _values(message: Mapping[str, Any], field: Field) -> Iterator[Any]:
    """Yield the values of a field."""
    if field.repeated:
        yield from message.get(field.name) or ()
    for name in (field.alone,) if field.repeated else (field.name,):
        if message.get(name) is not None:
            yield message[name]


def read_delimited(file: IO[bytes], most: int) -> Iterator[bytes]:
    """Yield the messages of a file in which each follows its length.

    Args:
        file: where to read.
        most: the largest length of a message, in bytes.

    Raises:
        ValueError: a length is malformed or too great.
        CutOffError: the file ends inside a message.
    """
    while first := file.read(1):
        length = _read_varint(first, file.read)
        if length > most:
            raise ValueError(f"expected a message of at most {most:,} bytes, got a length of {length:,}")
        message = file.read(length)
        if len(message) < length:
            raise CutOffError
        yield message


def delimited(message: bytes) -> bytes:
    """Return a message after its length."""
    return _varint(len(message)) + message


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the number, wire type and value of each field."""
    position = 0

    def take(count: int) -> bytes:
        nonlocal position
        taken = data[position : position + count]
        position += count
        return taken

    try:
        while position < len(data):
            key = _read_varint(take(1), take)
            number, wire_type = key >> 3, key & 7
            if not number or wire_type not in (_VARINT, _BYTES, *_FIXED):
                raise ValueError(f"field {number} has wire type {wire_type}")
            value = _read_varint(take(1), take) if wire_type in (_VARINT, _BYTES) else _FIXED[wire_type]
            yield number, wire_type, value if wire_type == _VARINT else take(value)
            if position > len(data):
                raise CutOffError
    except CutOffError:
        raise ValueError("a field ends after its message") from None


def _read_varint(first: bytes, take: Callable[[int], bytes]) -> int:
    """Return an unsigned number of at most 64 bits."""
    value, byte = 0, first
    for place in range(_MOST_VARINT_BYTES):
        if not byte:
            raise CutOffError
        value |= (byte[0] & 0x7F) << 7 * place
        if byte[0] < 0x80:
            if value >= 1 << 64:
                break
            return value
        if place < _MOST_VARINT_BYTES - 1:
            byte = take(1)
    raise ValueError("a number has more than 64 bits")


def _varint(value: int) -> bytes:
    """Return an integer as bytes; a negative one in two's complement of 64 bits."""
    value &= (1 << 64) - 1
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _value(field: Field, value: int | bytes) -> object:
    if isinstance(value, int):
        return bool(value) if field.kind == "bool" else value - (value >> 63 << 64)
    if isinstance(field.kind, str):
        return value if field.kind == "bytes" else value.decode()
    return decode(value, field.kind)


def _content(field: Field, value: Any) -> bytes:  # noqa: ANN401 - of the field's kind
    """Return a value without its key."""
    if field.wire_type == _VARINT:
        return _varint(int(value))
    if isinstance(field.kind, str):
        return delimited(value if field.kind == "bytes" else value.encode())
    return delimited(encode(value, field.kind))
