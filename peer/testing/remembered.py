"""What an object stores, whatever its attributes are called: for tests that bound what a node stores."""

import gc
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType

NOT_STORED = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""An object refers to its class and its functions, and through them to the whole program."""


def stored(thing: object) -> Iterator[object]:
    """Yield every object that is reachable from this one, itself included, but for classes and functions."""
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, NOT_STORED):
            seen.add(id(one))
            yield one
            waiting += gc.get_referents(one)


def numbers_stored(thing: object) -> set[int]:
    """Return the numbers by which anything is stored: members of sets, keys of dictionaries, and pairs of these."""
    found: set[int] = set()
    for one in stored(thing):
        if isinstance(one, dict | set | frozenset):
            for key in one:
                found.update(it for it in (key if isinstance(key, tuple) else (key,)) if isinstance(it, int))
    return found
