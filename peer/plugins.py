"""Extensions from outside this repository: modules beside an experiment, and installed distributions.

A plugin is a module or a package whose attributes describe what it adds; ``KINDS`` has their names. A command loads the
files that ``TRELLIS_PLUGINS`` names, then the copies that a run shipped beside the package ``peer``, then the entry
points of installed distributions. A module that an earlier source has loaded is not loaded again.

The registry of a kind reads ``added`` when it is imported, so every process that imports the registry has the plugins.
Nothing here reads a run directory: a run names its plugins, but never brings them.
"""

import hashlib
import os
import pkgutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from peer.core.frames import USER_KINDS, frame_type, kind_names

VARIABLE = "TRELLIS_PLUGINS"
"""The environment variable with the absolute paths of plugins, separated as in PATH."""

SHIPPED = "trellis_plugins"
"""The folder beside the package ``peer`` with the plugins of a run, on other machines and on Spark's workers."""

KINDS: Mapping[str, str] = {"protocols": "PROTOCOL"}
"""The kinds of extensions -> the attribute of a plugin that has one.

The entry points of a kind are in the group ``trellis.<kind>``; each names a module.
"""


class PluginError(Exception):
    """A plugin cannot be loaded. ``exit_code``: of the command that asked for it."""

    exit_code = 2


class Origin(Struct, frozen=True):
    """Where a plugin comes from, for manifests.

    Attributes:
        name: of its module.
        sha256: over the names and contents of its files.
        path: of its file or folder.
        version: of the installed distribution that has it; empty for a file.
    """

    name: str
    sha256: str
    path: str
    version: str = ""


class Plugin(Struct, frozen=True):
    """A loaded plugin.

    Attributes:
        origin: where it comes from.
        module: what it defines.
        contents: its Python files by their paths, which start with the name of the module.
    """

    origin: Origin
    module: ModuleType
    contents: dict[str, bytes]


def added(kind: str) -> Iterator[tuple[Plugin, Any]]:
    """Yield each plugin that adds something of a kind, and what it adds.

    Raises:
        PluginError: a plugin cannot be loaded.
    """
    for plugin in loaded():
        if (extension := getattr(plugin.module, KINDS[kind], None)) is not None:
            yield plugin, extension


@cache
def loaded() -> tuple[Plugin, ...]:
    """Load the plugins of this process once, and return them.

    Raises:
        PluginError: one is missing, raises when it is imported, adds nothing, or takes a name or number of others.
    """
    found: dict[str, Plugin] = {}
    for path in map(Path, named_files()):
        if (earlier := found.get(path.stem)) is None:
            found[path.stem] = _load_file(path)
        elif earlier.origin.path != str(path):
            raise PluginError(f"plugin {path}: the module {path.stem} is also the plugin {earlier.origin.path}")
    folder = Path(__file__).parents[1] / SHIPPED
    shipped = [module.name for module in pkgutil.iter_modules([str(folder)]) if module.name not in found]
    if shipped:
        sys.path.append(str(folder))
        root = folder.parent
        found |= {name: _load_shipped(name, zipfile.Path(root) if root.is_file() else root) for name in shipped}
    for kind in KINDS:
        for entry in entry_points(group=f"trellis.{kind}"):
            if entry.value not in found:
                found[entry.value] = _load_installed(entry)
    return tuple(found.values())


def named_files() -> list[str]:
    """Return the paths that ``TRELLIS_PLUGINS`` names."""
    return list(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))


def shipped_files() -> dict[str, bytes]:
    """Return the files of all plugins by their paths beside the package ``peer``."""
    return {f"{SHIPPED}/{name}": content for plugin in loaded() for name, content in plugin.contents.items()}


def hash_contents(contents: Mapping[str, bytes]) -> str:
    """Return the SHA-256 over each file's name, length and content, in the order of names."""
    total = hashlib.sha256()
    for name, content in sorted(contents.items()):
        total.update(b"%s\0%d\0" % (name.encode(), len(content)) + content)
    return total.hexdigest()


def _load_file(path: Path) -> Plugin:
    """Import a module or package by its path."""
    start = path / "__init__.py" if path.is_dir() else path
    if not start.is_file():
        raise PluginError(f"plugin {path}: expected a Python file, or a folder with __init__.py")
    if not path.stem.isidentifier() or start.suffix != ".py":
        raise PluginError(f"plugin {path}: expected a file NAME.py or a folder NAME; NAME is a Python identifier")
    if path.stem in sys.modules or _is_elsewhere(path.stem, start):
        raise PluginError(f"plugin {path}: there is another module {path.stem}; rename the plugin")
    folder = [str(path)] if path.is_dir() else None
    spec = spec_from_file_location(path.stem, start, submodule_search_locations=folder)
    assert spec is not None, "the file is Python"
    return _make(f"plugin {path}", spec, path)


def _is_elsewhere(name: str, start: Path) -> bool:
    """Whether an import of a module would find another file."""
    other = find_spec(name)
    return other is not None and (other.origin is None or Path(other.origin).resolve() != start)


def _load_shipped(name: str, root: Path | zipfile.Path) -> Plugin:
    """Import a plugin that a run shipped. ``root``: the folder with ``SHIPPED``, or the zip."""
    spec = find_spec(name)
    assert spec is not None, "pkgutil has found it"
    folder = root.joinpath(SHIPPED)
    inside = folder.joinpath(name)
    return _make(f"plugin {name}", spec, inside if inside.is_dir() else folder.joinpath(f"{name}.py"))


def _load_installed(entry: EntryPoint) -> Plugin:
    """Import the module of an installed distribution's entry point."""
    assert entry.dist is not None, "entry_points() sets it"
    shown = f"plugin {entry.value} of the distribution {entry.dist.name}"
    spec = find_spec(entry.value) if entry.value.isidentifier() else None
    if spec is None or spec.origin is None:
        raise PluginError(f"{shown}: expected the name of a top-level module or package")
    start = Path(spec.origin)
    path = start.parent if start.name == "__init__.py" else start
    return _make(shown, spec, path, f"{entry.dist.name} {entry.dist.version}")


def _make(shown: str, spec: ModuleSpec, place: Path | zipfile.Path, version: str = "") -> Plugin:
    """Import a module and check what it adds.

    Args:
        shown: what an error message calls the plugin.
        spec: of the module.
        place: of its file or folder.
        version: of its distribution.

    Raises:
        PluginError: it raises, adds nothing, or has frames of other kinds than ``USER_KINDS``.
    """
    contents = dict(_read(place, place.name))
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        assert spec.loader is not None, "namespace packages have no PROTOCOL"
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the code of a stranger raises
        raise PluginError(f"{shown}: {type(error).__name__}: {error}") from error
    if not any(hasattr(module, attribute) for attribute in KINDS.values()):
        raise PluginError(f"{shown}: it defines no {' or '.join(KINDS.values())}")
    for kind in kind_names():
        frame = frame_type(kind)
        if frame is not None and frame.__module__.partition(".")[0] == spec.name and kind not in USER_KINDS:
            known = f"{USER_KINDS.start}-{USER_KINDS.stop - 1}"
            raise PluginError(f"{shown}: {frame.__name__}: expected a kind in {known}, got {kind}")
    return Plugin(Origin(spec.name, hash_contents(contents), str(place), version), module, contents)


def _read(place: Path | zipfile.Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files in a place, by their paths."""
    if place.is_dir():
        for inner in place.iterdir():
            yield from _read(inner, f"{name}/{inner.name}")
    elif name.endswith(".py"):
        yield name, place.read_bytes()
