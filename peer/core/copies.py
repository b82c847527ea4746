"""The copies of messages that a node keeps for other nodes."""

from collections.abc import ItemsView, Iterator, ValuesView
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_KEPT_BYTES = 1 << 26
"""Most bytes of payload that a store of copies keeps (64 MiB), whatever neighbours send. One message always fits."""


class Copies(Generic[Key, Value]):
    """Values by key, in the order of their insertion. The store forgets the first ones if it is full.

    Args:
        most: the largest number of values; None = only their size is limited.
    """

    __slots__ = ("_bytes", "_most", "_sizes", "_values")

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._values: dict[Key, Value] = {}
        self._sizes: dict[Key, int] = {}
        self._bytes = 0

    def put(self, key: Key, value: Value, size_bytes: int) -> None:
        """Keep a value. If the key is kept already, it stays in its place.

        Args:
            key: the key.
            value: the value, which replaces an earlier one.
            size_bytes: its size in bytes, which counts towards the limit of the store.
        """
        self._bytes += size_bytes - self._sizes.get(key, 0)
        self._values[key] = value
        self._sizes[key] = size_bytes
        while self._bytes > MOST_KEPT_BYTES or (self._most is not None and len(self._values) > self._most):
            self.forget(next(iter(self._values)))

    def get(self, key: Key) -> Value | None:
        """Return the value of a key; None if it is not kept. A value that is read does not stay longer."""
        return self._values.get(key)

    def forget(self, key: Key) -> None:
        """Forget a key, if it is kept."""
        if self._values.pop(key, None) is not None:
            self._bytes -= self._sizes.pop(key)

    def items(self) -> ItemsView[Key, Value]:
        """Return keys and values, the first ones first."""
        return self._values.items()

    def __reversed__(self) -> Iterator[tuple[Key, Value]]:
        """Return keys and values, the last ones first."""
        return reversed(self._values.items())

    def values(self) -> ValuesView[Value]:
        """Return the values, the first ones first."""
        return self._values.values()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values
