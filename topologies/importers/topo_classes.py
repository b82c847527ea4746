"""Runs a user's Python file that defines a Mininet ``Topo``, and makes the topology that is asked for.

The file is code: it runs in this process with the user's rights, as ``mn --custom`` runs it. Its folder is searched for
modules last, so that it can import its neighbours and no module of Trellis is replaced. What it prints goes to standard
error.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mininet.topo import LinearTopo, MinimalTopo, SingleSwitchReversedTopo, SingleSwitchTopo, Topo
from mininet.topolib import TorusTopo, TreeTopo
from mininet.util import splitArgs

from topologies.provenance import hash_files
from topologies.reading import InputError, read_text

BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "minimal": MinimalTopo,
    "linear": LinearTopo,
    "reversed": SingleSwitchReversedTopo,
    "single": SingleSwitchTopo,
    "tree": TreeTopo,
    "torus": TorusTopo,
}
"""The topologies that Mininet brings, by the names of ``mn --topo``."""


class LoadedTopo(NamedTuple):
    """A topology, and the SHA-256 of the files that defined it, by their paths below the folder of the first one."""

    topo: Topo
    sha256: dict[str, str]


def load_topo(path: Path | None, call: str) -> LoadedTopo:
    """Make a topology.

    Args:
        path: the user's file; None = Mininet's own topologies.
        call: the name of a class or function of the file, or of an entry of its dictionary ``topos``, and arguments
            as for ``mn --topo``: ``MyTopo,3,n=2``.

    Raises:
        InputError: the file is missing, raises an error, or makes no ``Topo``; the place is its line if there is one.
    """
    name, arguments, named = splitArgs(call)
    place = call if path is None else str(path)
    modules: list[Path] = []
    with _running(place, path, modules):
        makers = BUILT_IN if path is None else _run(path, read_text(path))
        maker = makers.get(name)
        if not callable(maker):
            raise InputError(place, f"expected a Topo called {name}; found {', '.join(makers) or 'none'}")
        topo = maker(*arguments, **named)
    if not isinstance(topo, Topo):
        raise InputError(place, f"expected {name} to make a mininet.topo.Topo, got {type(topo).__name__}")
    if path is None:
        return LoadedTopo(topo, {})
    folder = path.resolve().parent
    neighbours = {str(file.relative_to(folder)): hash_files(file)[file.name] for file in modules}
    return LoadedTopo(topo, hash_files(path) | neighbours)


def _run(path: Path, text: str) -> dict[str, Any]:
    """Run a file, and return what makes topologies by its name: entries of ``topos``, classes and functions."""
    module = ModuleType(f"topo file {path.name}")
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec"), module.__dict__)
    own = {
        name: value
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    }
    topos = vars(module).get("topos")
    return {**own, **topos} if isinstance(topos, dict) else own


@contextmanager
def _running(place: str, path: Path | None, modules: list[Path]) -> Iterator[None]:
    """Let a user's code run, and turn what it raises into an ``InputError``.

    Args:
        place: what an error names, with the line of the file if it is known.
        path: the user's file.
        modules: gets the files of its folder that the code imports.
    """
    folder, known = None if path is None else str(path.resolve().parent), set(sys.modules)
    if folder is not None:
        sys.path.append(folder)
    try:
        with redirect_stdout(sys.stderr):
            yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises
        raise InputError(
            _place(place, error), f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        ) from None
    finally:
        if folder is not None:
            with suppress(ValueError):  # the user's code may have removed it
                sys.path.remove(folder)
            modules += _forget(set(sys.modules) - known, Path(folder))


def _place(place: str, error: BaseException) -> str:
    """Return the file with the last of its lines that was running."""
    if isinstance(error, SyntaxError) and error.filename == place:
        return f"{place}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    return f"{place}:{lines[-1]}" if lines else place


def _forget(names: set[str], folder: Path) -> list[Path]:
    """Remove the modules of a folder, so that a later file has its own ones, and return their files.

    What is installed in an environment below the folder is no neighbour.
    """
    files: dict[str, Path] = {}
    installed = Path(sys.prefix) if Path(sys.prefix).is_relative_to(folder) else None
    for name in sorted(names):
        file = Path(getattr(sys.modules[name], "__file__", None) or "")
        if file.is_relative_to(folder) and not (installed and file.is_relative_to(installed)):
            files[name] = file
            del sys.modules[name]
    return list(files.values())
