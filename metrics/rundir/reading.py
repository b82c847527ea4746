"""Reads the files of a run directory: the rules for missing, damaged and unfinished files."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from metrics.rundir.files import MANIFEST_FILE, PLAN_FILE, SUMMARY_FILE, UNDERLAY_FILE
from metrics.rundir.plain import find_foreign
from metrics.storage import Place
from peer.files import OVERLAY_FILE

Value = TypeVar("Value")

_MEANINGS = {
    MANIFEST_FILE: ": the run did not finish",
    SUMMARY_FILE: ": the run has not been analysed; try: trellis report {}",
}
"""What it means if a file is missing."""


_MIB = 1 << 20
_MOST_BYTES = {UNDERLAY_FILE: 8192 * _MIB, OVERLAY_FILE: 4096 * _MIB, PLAN_FILE: 256 * _MIB}
_MOST_BYTES_OF_OTHERS = 64 * _MIB
"""The largest size of a document, which is read into memory. The largest plans have a tenth of that."""

_MOST_BYTES_OF_A_LINE = 16 * _MIB


class RunDirError(Exception):
    """A run directory lacks a file, or has a damaged file or a file of another version. ``exit_code`` is the CLI's."""

    exit_code = 2

    def __init__(self, path: Place, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class DamagedError(RunDirError):
    """A file does not have the content that it should; ``cause`` says what is wrong."""

    def __init__(self, path: Place, cause: Exception) -> None:
        super().__init__(path.parent, f"{path.name} is damaged: {cause}")
        self.cause = cause


def require_plain(path: Place) -> None:
    """Check that a folder of this machine is a run directory with only folders and files of its own.

    A folder without a plan is not searched: it may be any folder of the machine (``metrics.rundir.plain``).

    Raises:
        RunDirError: there is no plan, or there is another kind of file, which the message names.
    """
    if isinstance(path, Path):
        if not os.path.lexists(path / PLAN_FILE):
            raise _no_run(path)
        if foreign := find_foreign(path):
            raise RunDirError(path, f"{foreign}; a run directory has only files and folders of its own")


def require_run_dir(path: Place) -> None:
    """Check that a path is a run directory, and a plain one.

    Raises:
        RunDirError: it has no plan, or something that a run directory does not have.
    """
    require_plain(path)
    if not (path / PLAN_FILE).is_file():
        raise _no_run(path)


def _no_run(path: Place) -> RunDirError:
    if isinstance(path, Path) and not path.exists():
        return RunDirError(path, os.strerror(errno.ENOENT))
    return RunDirError(path, f"not a run directory: it has no {PLAN_FILE}")


def read_document(path: Place, decode: Callable[[bytes], Value]) -> Value:
    """Read a file that must be directly in a run directory.

    Raises:
        RunDirError: it is missing or cannot be read.
        DamagedError: it cannot be decoded.
    """
    try:
        size, most = path.stat().st_size, _MOST_BYTES.get(path.name, _MOST_BYTES_OF_OTHERS)
        if size > most:
            raise ValueError(f"expected at most {most // _MIB:,} MiB, got {size / _MIB:,.0f}")
        return decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        require_run_dir(path.parent)
        meaning = _MEANINGS.get(path.name, "").format(path.parent)
        raise RunDirError(path.parent, f"{path.name} is missing{meaning}") from None
    except OSError as error:
        raise RunDirError(path, error.strerror or str(error) or "cannot be read") from None
    except RecursionError:
        raise DamagedError(path, ValueError("it is nested too deeply")) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(path, error) from None


def iterate_lines(path: Place, decode: Callable[[bytes], Value]) -> Iterator[Value]:
    """Yield the lines of a file one after the other, none if it is missing, up to the first damaged one.

    A process that is killed leaves a part of its last line.
    """
    if path.exists():
        with path.open("rb") as file:
            while line := file.readline(_MOST_BYTES_OF_A_LINE):
                try:
                    value = decode(line.rstrip(b"\r\n"))
                except ValueError:
                    return
                yield value


def read_lines(path: Place, decode: Callable[[bytes], Value]) -> list[Value]:
    """Read the same lines, all at once."""
    return list(iterate_lines(path, decode))
