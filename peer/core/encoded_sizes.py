"""How many bytes msgpack makes of values, for frames whose length is needed more often than their bytes."""

from collections.abc import Collection


def count_integer_bytes(number: int) -> int:
    """Return how many bytes msgpack makes of a number from 0 to 2**64 - 1."""
    if number < 1 << 8:
        return 1 if number < 1 << 7 else 2
    return 3 if number < 1 << 16 else 5 if number < 1 << 32 else 9


def count_string_bytes(string: bytes) -> int:
    """Return how many bytes msgpack makes of a byte string."""
    length = len(string)
    return length + (2 if length < 1 << 8 else 3 if length < 1 << 16 else 5)


def count_array_head_bytes(length: int) -> int:
    """Return how many bytes msgpack puts before the items of an array."""
    return 1 if length < 1 << 4 else 3 if length < 1 << 16 else 5


def count_set_bytes(numbers: frozenset[int]) -> int:
    """Return how many bytes msgpack makes of a set of numbers."""
    return count_array_head_bytes(len(numbers)) + count_integers_bytes(numbers)


def count_integers_bytes(numbers: Collection[int]) -> int:
    """Return how many bytes msgpack makes of numbers, without a head."""
    return sum([count_integer_bytes(number) for number in numbers])
