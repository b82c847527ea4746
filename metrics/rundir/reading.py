"""How the files of a run directory are read and written: the rules for missing, damaged and unfinished ones."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from metrics.rundir.files import MANIFEST_FILE, PLAN_FILE, SUMMARY_FILE

Value = TypeVar("Value")

_MEANINGS = {
    MANIFEST_FILE: ": the run did not finish",
    SUMMARY_FILE: ": the run has not been analysed; try: trellis report {}",
}
"""What it means that a file is missing."""


class RunDirError(Exception):
    """A run directory lacks a file, or has one that is damaged or of another version. ``exit_code`` is the CLI's."""

    exit_code = 2

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class DamagedError(RunDirError):
    """A file does not hold what it should; ``cause`` says what is wrong."""

    def __init__(self, path: Path, cause: Exception) -> None:
        super().__init__(path.parent, f"{path.name} is damaged: {cause}")
        self.cause = cause


def require_run_dir(path: Path) -> None:
    """Check that a path is a run directory.

    Raises:
        RunDirError: it has no plan.
    """
    if not (path / PLAN_FILE).is_file():
        raise RunDirError(path, f"not a run directory: it has no {PLAN_FILE}")


def read_document(path: Path, decode: Callable[[bytes], Value]) -> Value:
    """Read a file, directly in a run directory, that must be there.

    Raises:
        RunDirError: it is missing or cannot be read.
        DamagedError: it cannot be decoded.
    """
    try:
        return decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        require_run_dir(path.parent)
        meaning = _MEANINGS.get(path.name, "").format(path.parent)
        raise RunDirError(path.parent, f"{path.name} is missing{meaning}") from None
    except OSError as error:
        raise RunDirError(path, error.strerror or "cannot be read") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(path, error) from None


def read_lines(path: Path, decode: Callable[[bytes], Value]) -> list[Value]:
    """Read the lines of a file, none if it is missing, up to the first that cannot be decoded.

    A process that is killed leaves a part of its last line.
    """
    found: list[Value] = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(decode(line))
        except ValueError:
            break
    return found


def write_document(path: Path, value: object) -> None:
    """Write a value as indented JSON. The file appears whole or not at all."""
    unfinished = path.with_name(f"{path.name}.part")
    try:
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.replace(path)
