"""The lengths of values in msgpack, for frames whose length is needed more often than their bytes."""

from collections.abc import Collection


def count_integer_bytes(number: int) -> int:
    """Return the number of bytes of a number from 0 to 2**64 - 1 in msgpack."""
    if number < 1 << 8:
        return 1 if number < 1 << 7 else 2
    return 3 if number < 1 << 16 else 5 if number < 1 << 32 else 9


def count_string_bytes(string: bytes) -> int:
    """Return the number of bytes of a byte string in msgpack."""
    length = len(string)
    return length + (2 if length < 1 << 8 else 3 if length < 1 << 16 else 5)


def count_array_head_bytes(length: int) -> int:
    """Return the number of bytes before the items of an array in msgpack."""
    return 1 if length < 1 << 4 else 3 if length < 1 << 16 else 5


def count_set_bytes(numbers: frozenset[int]) -> int:
    """Return the number of bytes of a set of numbers in msgpack."""
    return count_array_head_bytes(len(numbers)) + count_integers_bytes(numbers)


def count_integers_bytes(numbers: Collection[int]) -> int:
    """Return the number of bytes of numbers in msgpack, without the head of an array."""
    return sum([count_integer_bytes(number) for number in numbers])
