"""Extensions that are not in this repository: modules beside an experiment, and installed distributions.

A plugin is a module or a package whose attributes describe its extensions; ``KINDS`` has the names of these attributes.
The value of an attribute is one extension, a tuple of extensions, or ``module:name`` of either. A module in such a name
is imported with the registry of its kind, so a plugin with a protocol and measures can be loaded without the package
``metrics``.

A command loads the files that ``TRELLIS_PLUGINS`` names, then the copies that a run shipped beside the package
``peer``, then the entry points of installed distributions. A module that an earlier source has loaded is not loaded
again.

The registry of a kind calls ``added`` when it is imported, so every process that imports the registry has the plugins.
This module does not read run directories: a run names its plugins but does not contain them.
"""

import ast
import hashlib
import os
import pkgutil
import sys
import zipfile
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct

from peer.core.frames import USER_KINDS, frame_type, kind_names

VARIABLE = "TRELLIS_PLUGINS"
"""The environment variable with the absolute paths of plugins, separated as in PATH."""

SHIPPED = "trellis_plugins"
"""The folder beside the package ``peer`` with the plugins of a run, on other machines and on Spark's workers."""


class Kind(NamedTuple):
    """A kind of extensions.

    Attributes:
        attribute: the attribute of plugins with their extensions of this kind.
        room: the package that reads it. A plugin is shipped to the places that have the room of one of its kinds.
        without: packages that some places with the room lack.
    """

    attribute: str
    room: str
    without: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "protocols": Kind("PROTOCOL", "peer", ("topologies", "metrics", "harness")),
    "adversaries": Kind("ADVERSARY", "peer", ("topologies", "metrics", "harness")),
    "underlays": Kind("UNDERLAY", "topologies", ("metrics.report", "harness")),
    "importers": Kind("IMPORTER", "topologies", ("metrics.report", "harness")),
    "measures": Kind("MEASURE", "metrics", ("metrics.report", "harness")),
    "figures": Kind("CHAPTER", "metrics.report", ("harness",)),
}
"""The kinds of extensions. The entry points of a kind are in the group ``trellis.<kind>``; each names a module."""


class Named(Protocol):
    """The common attribute of all extensions."""

    @property
    def name(self) -> str: ...


Extension = TypeVar("Extension", bound=Named)


_LOADING: list[str] = []
"""The name in error messages of the plugin that is being imported."""


class PluginError(Exception):
    """A plugin cannot be loaded. ``exit_code``: the exit status of the command that needs it."""

    exit_code = 2


class Origin(Struct, frozen=True):
    """The origin of a plugin, for manifests.

    Attributes:
        name: the name of its module.
        sha256: the hash of the names and contents of its files.
        path: the path of its file or folder.
        version: the name and version of its installed distribution; empty for a file.
    """

    name: str
    sha256: str
    path: str
    version: str = ""


class Plugin(Struct, frozen=True):
    """A loaded plugin.

    Attributes:
        origin: its origin.
        module: the imported module.
        contents: its Python files by their paths, which start with the name of the module.
        shown: its name in error messages.
    """

    origin: Origin
    module: ModuleType
    contents: dict[str, bytes]
    shown: str

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its extensions."""
        return tuple(kind for kind in KINDS.values() if hasattr(self.module, kind.attribute))


def added(kind: str, form: type[Extension]) -> Iterator[tuple[Plugin, Extension]]:
    """Yield the extensions of plugins of a kind.

    Args:
        kind: a key of ``KINDS``.
        form: the class of the kind's extensions.

    Yields:
        The plugin and the extension.

    Raises:
        PluginError: a plugin cannot be loaded, or an extension has another class.
    """
    for plugin in loaded():
        for extension in _extensions(plugin, KINDS[kind].attribute):
            if not isinstance(extension, form):
                expected = f"expected {KINDS[kind].attribute} to be of the class {form.__name__}"
                raise PluginError(f"{plugin.shown}: {expected}, got {type(extension).__name__}")
            yield plugin, extension


def add_extensions(
    own: Mapping[str, Extension], kind: str, form: type[Extension], taken: Collection[str] = ()
) -> dict[str, Extension]:
    """Return the registry of a kind by name: its own entries, then those of plugins.

    Args:
        own: the entries of Trellis.
        kind: a key of ``KINDS``.
        form: the class of the entries.
        taken: other names that a plugin cannot use.

    Raises:
        PluginError: a plugin cannot be loaded, has an extension of another class, or uses a name that is taken.
    """
    together = dict(own)
    for plugin, extension in added(kind, form):
        if extension.name in together or extension.name in taken:
            raise name_is_taken(plugin, extension.name)
        together[extension.name] = extension
    return together


def name_is_taken(plugin: Plugin, name: str) -> PluginError:
    """Return the error of a plugin that uses a name that is taken."""
    return PluginError(f"{plugin.shown}: the name {name!r} is taken; choose another one")


def plugins_with(extensions: Collection[tuple[str, str]]) -> list[Plugin]:
    """Return the plugins with at least one of these extensions.

    Args:
        extensions: pairs of a key of ``KINDS`` and a name.

    Raises:
        PluginError: a plugin cannot be loaded.
    """
    kinds = sorted({kind for kind, _ in extensions})
    return [
        plugin
        for plugin in loaded()
        if any(
            (kind, getattr(extension, "name", "")) in extensions
            for kind in kinds
            for extension in _extensions(plugin, KINDS[kind].attribute)
        )
    ]


def _extensions(plugin: Plugin, attribute: str) -> tuple[object, ...]:
    """Return the extensions in a plugin's attribute. Import the module that it names, if any."""
    value = getattr(plugin.module, attribute, ())
    if isinstance(value, str):
        try:
            value = pkgutil.resolve_name(value)
        except (Exception, SystemExit) as error:  # code from elsewhere may raise any exception
            raise PluginError(f"{plugin.shown}: {attribute} = {value!r}: {type(error).__name__}: {error}") from error
    return value if isinstance(value, tuple) else (value,)


@cache
def loaded() -> tuple[Plugin, ...]:
    """Load the plugins of this process once, and return them.

    Raises:
        PluginError: a plugin is missing, raises an exception when it is imported, has no extension, or uses a name or
            number that is taken.
    """
    if _LOADING:
        problem = "it imports a registry, which imports all plugins; import it inside the function that needs it"
        raise PluginError(f"{_LOADING[-1]}: {problem}")
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
    installed = entry_points()  # looked up once: it reads a file of every distribution
    for kind in KINDS:
        for entry in installed.select(group=f"trellis.{kind}"):
            if entry.value not in found:
                found[entry.value] = _load_installed(entry)
    return tuple(found.values())


def named_files() -> list[str]:
    """Return the paths that ``TRELLIS_PLUGINS`` names."""
    return list(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))


def shipped_files(rooms: Collection[str]) -> dict[str, bytes]:
    """Return the files of the plugins that packages read, by their paths beside the package ``peer``.

    Args:
        rooms: the packages, which are shipped, too.
    """
    shipped = [plugin for plugin in loaded() if any(kind.room in rooms for kind in plugin.kinds)]
    return {f"{SHIPPED}/{name}": content for plugin in shipped for name, content in plugin.contents.items()}


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
    """Return whether an import of a module would find another file."""
    other = find_spec(name)
    return other is not None and (other.origin is None or Path(other.origin).resolve() != start)


def _load_shipped(name: str, root: Path | zipfile.Path) -> Plugin:
    """Import a plugin that a run shipped. ``root``: the folder or zip that contains ``SHIPPED``."""
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
    """Import a module and check its extensions.

    Args:
        shown: its name in error messages.
        spec: the spec of the module.
        place: its file or folder.
        version: the name and version of its distribution.

    Raises:
        PluginError: the module raises an exception, has no extension, imports a package that is missing in a place
            where the plugin is loaded, or has frames of other kinds than ``USER_KINDS``.
    """
    contents = dict(_read(place, place.name))
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    _LOADING.append(shown)
    try:
        assert spec.loader is not None, "namespace packages have no attributes"
        spec.loader.exec_module(module)
    except PluginError:
        raise
    except (Exception, SystemExit) as error:  # code from elsewhere may raise any exception
        raise PluginError(f"{shown}: {type(error).__name__}: {error}") from error
    finally:
        _LOADING.pop()
    plugin = Plugin(Origin(spec.name, hash_contents(contents), str(place), version), module, contents, shown)
    if not plugin.kinds:
        *others, last = (kind.attribute for kind in KINDS.values())
        raise PluginError(f"{shown}: it defines no {', '.join(others)} or {last}")
    _check_imports(plugin)
    _check_frames(plugin)
    return plugin


def _check_imports(plugin: Plugin) -> None:
    """Check that a plugin imports no package at once that is missing in a place where the plugin is loaded."""
    missing = {package: kind for kind in reversed(plugin.kinds) for package in kind.without}
    for path, content in plugin.contents.items():
        if path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") not in sys.modules:
            continue
        for line, name in _imports(content):
            for package, kind in missing.items():
                if f"{name}.".startswith(f"{package}."):
                    problem = f"{kind.attribute} is used where there is no {package}"
                    solution = "name what imports it as 'module:name', or make it another plugin"
                    raise PluginError(f"{plugin.shown}: {path}, line {line}: {problem}; {solution}")


def _imports(content: bytes) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name of every import outside functions, classes and conditions."""
    for node in ast.parse(content).body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _check_frames(plugin: Plugin) -> None:
    """Check that all frames of a plugin have kinds in ``USER_KINDS``."""
    for kind in kind_names():
        frame = frame_type(kind)
        if frame is not None and frame.__module__.partition(".")[0] == plugin.origin.name and kind not in USER_KINDS:
            known = f"{USER_KINDS.start}-{USER_KINDS.stop - 1}"
            raise PluginError(f"{plugin.shown}: {frame.__name__}: expected a kind in {known}, got {kind}")


def _read(place: Path | zipfile.Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files in a place, by their paths."""
    if place.is_dir():
        for inner in place.iterdir():
            yield from _read(inner, f"{name}/{inner.name}")
    elif name.endswith(".py"):
        yield name, place.read_bytes()
