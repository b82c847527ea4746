"""Patterns of fields: what a pattern admits is one line. ``$`` would admit a newline after the last character."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, inspect

import harness
import peer
import topologies

PACKAGES = (harness, peer, topologies)
UNIMPORTED = ("harness.setup",)


def structs(base: type[Struct] = Struct) -> Iterator[type[Struct]]:
    for kind in base.__subclasses__():
        yield kind
        yield from structs(kind)


def patterns_in(value: Any, above: frozenset[int] = frozenset()) -> Iterator[str]:
    """All patterns in msgspec's description of a type, however deep. ``above``: descriptions that it is part of."""
    if id(value) in above:
        return  # a type that contains itself
    above |= {id(value)}
    if isinstance(value, inspect.StrType) and value.pattern is not None:
        yield value.pattern
    children = value.__struct_fields__ if isinstance(value, Struct) else ()
    for child in (getattr(value, name) for name in children):
        if isinstance(child, tuple):
            for item in child:
                yield from patterns_in(item, above)
        elif isinstance(child, (inspect.Type, inspect.Field)):
            yield from patterns_in(child, above)


def all_patterns() -> dict[str, set[str]]:
    """Every pattern of every type of these packages, with the types that have it."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(UNIMPORTED) and not module.name.endswith("__main__"):
                import_module(module.name)
    names = tuple(f"{package.__name__}." for package in PACKAGES)
    found: dict[str, set[str]] = {}
    for kind in structs():
        if kind.__module__.startswith(names):
            for pattern in patterns_in(inspect.type_info(kind)):
                found.setdefault(pattern, set()).add(kind.__qualname__)
    return found


PATTERNS = all_patterns()


def test_there_are_patterns_to_look_at() -> None:
    assert {"Machine", "Experiment"} <= set().union(*PATTERNS.values())


@pytest.mark.parametrize("pattern", PATTERNS)
@given(data=st.data(), tail=st.sampled_from(["\n", "\n\n", "\r\n", "\nx", "\v", "\u2028"]))
def test_a_pattern_admits_one_line(pattern: str, data: st.DataObject, tail: str) -> None:
    form = Annotated[str, Meta(pattern=pattern)]
    text = data.draw(st.from_regex(pattern))
    assert len(text.splitlines()) <= 1
    assert "\n" not in msgspec.convert(text, form)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text + tail, form)
