"""Reads TOML files and the command line's overrides as plain values. Every error is one line with the place."""

import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import ExperimentError
from harness.terminal import printable, shorten
from topologies.reading import InputError, hint_at_comma, read_text

LARGEST_BYTES = 4 << 20
"""Limit on the size of an experiment, a study or an inventory (4 MiB)."""

DEEPEST = 32
"""Limit on the sections and lists within each other."""

BARE_WORD = re.compile(r"[A-Za-z0-9_./~:+-]+")

_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){64}""")
"""A dotted key that tomllib reads in a time that grows with the square of its parts."""

_TOO_DEEP = f"nested too deeply: expected at most {DEEPEST} sections or lists within each other"


@contextmanager
def input_errors() -> Iterator[None]:
    """Turn the errors of files that a user names into ``ExperimentError``."""
    try:
        yield
    except InputError as error:
        raise ExperimentError(error.place, error.problem) from None


@contextmanager
def naming_origin(path: Path, overrides: Sequence[str] = (), **options: object) -> Iterator[None]:
    """Name in an error the origin of the key: the option that set it, otherwise the file with all options.

    A key of the file may be wrong only because of an option: 4 links per node are too many with ``--set hosts=3``.

    Args:
        path: the file.
        overrides: the ``key=value`` of ``--set``.
        options: values that options of their own set, by key; None = the option was not given.
    """
    try:
        yield
    except ExperimentError as error:
        if not error.path.startswith("$"):
            raise
        given = {key: f"--{key} {value}" for key, value in options.items() if value is not None}
        named = {override.partition("=")[0].strip(): _describe_override(override) for override in overrides}
        raise ExperimentError(_place_with_origin(path, error.path, named | given), error.problem) from None


def _place_with_origin(path: Path, place: str, given: dict[str, str]) -> str:
    """Return the place of an error with its origin. ``given``: the options by the keys that they set."""
    keys = [key for key in given if f"{place}.".startswith((f"$.{key}.", f"$.{key}["))]
    if keys:
        nearest = max(keys, key=len)
        return given[nearest] if place == f"$.{nearest}" else f"{given[nearest]}: {place}"
    return f"{' '.join([str(path), *(['with', *given.values()] if given else [])])}: {place}"


def _describe_override(override: str) -> str:
    return f"--set {shorten(printable(' '.join(override.split())))}"


def read_toml(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a TOML file and apply the ``key=value`` overrides of the command line.

    Raises:
        ExperimentError: the file is not TOML, an override is not an assignment, or a value can be used by nothing.
    """
    with input_errors():
        text = read_text(path, LARGEST_BYTES)
    try:
        document = _parse(text)
    except tomllib.TOMLDecodeError as error:
        problem, _, place = str(error).partition(" (at ")
        position = re.findall(r"\d+", place)
        hint = hint_at_comma(_value_in(text, int(position[0]))) if position else ""
        place = f"{path}:{':'.join(position) or 'end'}"
        raise ExperimentError(place, f"{problem[:1].lower()}{problem[1:]}{hint}") from None
    except ValueError as error:
        raise ExperimentError(str(path), str(error)) from None
    apply_overrides(document, path, overrides)
    return document


def apply_overrides(document: dict[str, Any], path: Path, overrides: Sequence[str]) -> None:
    """Apply the ``key=value`` overrides of the command line to a document.

    Args:
        document: it is changed.
        path: its file, for errors.
        overrides: with dotted keys.

    Raises:
        ExperimentError: an override is not an assignment, or a value of the document can be used by nothing.
    """
    for override in overrides:
        try:
            _assign(document, override)
        except ExperimentError as error:
            raise ExperimentError(_describe_override(override), error.problem) from None
    with naming_origin(path, overrides):
        _refuse_unusable(document)


def _value_in(text: str, line: int) -> str:
    """Return what a line of a TOML text assigns, without a comment."""
    return text.split("\n")[line - 1].partition("=")[2].partition("#")[0].strip()


def _parse(text: str) -> dict[str, Any]:
    """Return the document of a TOML text.

    Raises:
        tomllib.TOMLDecodeError: the text is not TOML.
        ValueError: it is nested too deeply, or has an integer that is too long to be read.
    """
    if _LONG_KEY.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python's own limit on the digits of an integer
        raise ValueError("expected integers of at most 64 bits, got one of more than 4,300 digits") from None
    if _depth(document) > DEEPEST:
        raise ValueError(_TOO_DEEP)
    return document


def _depth(document: object) -> int:
    """Return the number of levels of sections and lists, without recursion."""
    level, depth = [document], 0
    while level := [value for value in level if isinstance(value, dict | list)]:
        depth += 1
        level = [inner for value in level for inner in (value.values() if isinstance(value, dict) else value)]
    return depth


def _assign(document: dict[str, Any], override: str) -> None:
    """Apply one ``--set key=value``."""
    key, separator, text = override.partition("=")
    names = key.strip().split(".")
    if not separator or not all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names):
        raise ExperimentError("--set", "expected key=value, such as underlay.hosts=20")
    if len(names) > DEEPEST:
        raise ExperimentError("--set", _TOO_DEEP)
    table = document
    for name in names[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ExperimentError("--set", f"{shorten(name)} is a value, not a section")
    table[names[-1]] = _override_value(text.strip())


def _override_value(text: str) -> object:
    """Return the value of an override."""
    try:
        text.encode()
        parsed = _parse(f"value = {text}")
        if parsed.keys() == {"value"}:
            return parsed["value"]
    except UnicodeEncodeError:
        raise ExperimentError("--set", "expected UTF-8 text") from None
    except tomllib.TOMLDecodeError:
        if BARE_WORD.fullmatch(text):
            return text
    except ValueError as error:
        raise ExperimentError("--set", str(error)) from None
    raise ExperimentError("--set", f"expected a TOML value or a bare word after the ={hint_at_comma(text)}")


def _refuse_unusable(value: object, path: str = "$") -> None:
    """Refuse values that TOML allows and nothing can use: nan, inf, long integers, and texts with a null character.

    Raises:
        ExperimentError: a value is one of them; the place is a path below ``$``.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_unusable(inner, place_of(path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_unusable(inner, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ExperimentError(path, f"expected a finite number, got {value}")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ExperimentError(path, f"expected an integer of at most 64 bits, got one of {value.bit_length()} bits")
    elif isinstance(value, str) and "\0" in value:
        raise ExperimentError(path, f"expected a text without null characters, got {shorten(repr(value))}")


def place_of(path: str, key: str) -> str:
    """Return the path of a key, on one line however the file spells the key."""
    return f"{path}.{shorten(key if BARE_WORD.fullmatch(key) else repr(key))}"
