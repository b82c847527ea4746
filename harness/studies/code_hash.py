"""The hash of the code that determines the results of experiments.

It covers the modules of ``CODE``, without those that only unused protocols need, so that a change of one protocol
leaves the results of the others as they are. A protocol's own modules are its package in ``peer.protocols`` and the
package's module in ``harness.planning.models``. An experiment uses the packages that describe its protocol and its
parts.

A module is left out if it is an unused protocol's own, or if such a module imports it, directly or not, and no module
that counts does. The same holds for ``ON_DEMAND`` if no peer is a process. All others count, such as those that nothing
imports. The registry's imports of protocols do not count as imports, since it imports every protocol.

Where an experiment or a measure uses what plugins add (``peer.plugins``), the hashes of these plugins count, too.

Of a module the syntax tree counts, without statements that are only a text (docstrings). Comments, layout and line
numbers do not matter.
"""

import ast
import hashlib
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness.cache import keep, read_kept
from harness.experiment.form import Experiment
from harness.planning.composition import choose_parts
from harness.testbeds.registry import find_lack
from peer.plugins import plugins_with
from peer.protocols.registry import SHARED_DISSEMINATIONS

ROOT = Path(__file__).parents[2]
"""The folder or zip that is imported from."""

CODE = (
    "peer",
    "topologies",
    "harness/experiment/form.py",
    "harness/experiment/sections",
    "harness/planning",
    "harness/simulator",
    "harness/studies/carried.py",
    "harness/studies/groups.py",
    "harness/studies/observer.py",
    "harness/studies/point_run.py",
    "harness/studies/snapshots.py",
    "harness/workload",
    "metrics/facts",
    "metrics/measures",
    "metrics/overlay",
    "metrics/rundir/phases.py",
)
"""Files and folders whose Python files determine the results of a job.

The rest of ``harness.studies`` chooses jobs, which their keys tell apart, or shows results.
"""

PROTOCOLS, MODELS = "peer.protocols", "harness.planning.models"
"""The packages with one package or module per protocol."""

ON_DEMAND = ("peer.interop", "peer.runtime", "peer.testing")
"""Packages for peers as processes and for tests, whose modules count only if one that counts imports them."""

REGISTRY = "peer.protocols.registry"
"""The module that imports every protocol, used or not."""


_FILE = "modules.json"
"""What is kept in the user's cache folder."""


class Module(NamedTuple):
    """What the hash needs to know of a source file.

    Attributes:
        digest: the SHA-256 of its syntax tree.
        describes: the names of the protocols that it describes (``peer.protocols.description.Description``).
        imports: the dotted names that it imports, anywhere in it, such as ``peer.core.links.LinkTable``.
    """

    digest: bytes
    describes: frozenset[str]
    imports: frozenset[str]


def code_of(experiments: Iterable[Experiment], measures: Collection[str] = ()) -> str:
    """Return the hash of the code that determines the results of experiments, where this code is imported from.

    Args:
        experiments: what is run.
        measures: what is measured.
    """
    protocols: set[str] = set()
    extensions = {("measures", name) for name in measures}
    processes = False
    for experiment in experiments:
        protocols |= protocols_of(experiment)
        processes |= find_lack(experiment.testbed, "processes") is None
        extensions.add(("adversaries", experiment.adversary.kind))
        extensions |= {(kind, experiment.underlay.kind) for kind in ("underlays", "importers")}
    return code_of_protocols(frozenset(protocols), frozenset(extensions), processes=processes)


def code_now(experiments: Iterable[Experiment], measures: Collection[str] = ()) -> str:
    """Return the same as ``code_of``, but read the code again: it may have changed since this process read it."""
    modules_here.cache_clear()
    code_of_protocols.cache_clear()
    return code_of(experiments, measures)


@cache
def code_of_protocols(
    protocols: frozenset[str], extensions: frozenset[tuple[str, str]] = frozenset(), *, processes: bool = False
) -> str:
    """Return the same for what experiments use.

    Args:
        protocols: names of protocols.
        extensions: kinds of ``peer.plugins.KINDS`` and names.
        processes: whether peers of an experiment are processes.
    """
    code = hash_modules(modules_here(), protocols, processes=processes)
    used = plugins_with(extensions | {("protocols", name) for name in protocols})
    plugins = sorted(plugin.origin.sha256 for plugin in used)
    return hashlib.sha256("".join((code, *plugins)).encode()).hexdigest()[:16] if plugins else code


@cache
def modules_here() -> dict[str, Module]:
    """Return the modules of ``CODE`` by name, where this code is imported from.

    What was read of a source is kept in the user's cache folder, under the hash of its content and of this module: to
    parse all of them takes more than a second.
    """
    reader = _place(ROOT).joinpath("harness", "studies", "code_hash.py").read_bytes()
    sources = dict(_all_sources(ROOT))
    keys = {name: hashlib.sha256(b"\0".join((reader, name.encode(), content))) for name, content in sources.items()}
    kept = read_kept(_FILE, dict[str, Module]) or {}
    modules = {name: kept.get(keys[name].hexdigest()) or _read(name, content) for name, content in sources.items()}
    found = {keys[name].hexdigest(): module for name, module in modules.items()}
    if not found.keys() <= kept.keys():
        keep(_FILE, found)
    return modules


def protocols_of(experiment: Experiment) -> set[str]:
    """Return the names of the protocols that an experiment uses: its own, and those whose parts its nodes have."""
    parts = choose_parts(experiment)
    names = {experiment.protocol, str(parts.overlay["name"]), str(parts.dissemination["name"])}
    return names - SHARED_DISSEMINATIONS.keys()


def hash_modules(modules: Mapping[str, Module], protocols: Collection[str], *, processes: bool = False) -> str:
    """Return the hash of the modules that determine the results of experiments with these protocols.

    Args:
        modules: every module of ``CODE`` by its dotted name.
        protocols: names of protocols. If no module describes one of them, all modules count.
        processes: whether ``ON_DEMAND`` counts as all other code does, since peers are processes.
    """
    digest = hashlib.sha256()
    for name in sorted(used_modules(modules, protocols, processes=processes)):
        digest.update(name.encode() + b"\0" + modules[name].digest)
    return digest.hexdigest()[:16]


def used_modules(modules: Mapping[str, Module], protocols: Collection[str], *, processes: bool = False) -> set[str]:
    """Return the modules that count; the arguments are those of ``hash_modules``."""
    own = own_modules(modules)
    named: dict[str, set[str]] = {}
    for package in own.values():
        for protocol in frozenset().union(*(modules[name].describes for name in package)):
            named.setdefault(protocol, set()).update(package)
    of_any = set().union(*own.values())
    imports = {name: resolve_names(module.imports | {name}, modules) for name, module in modules.items()}
    imports[REGISTRY] = imports.get(REGISTRY, set()) - of_any
    on_demand = set() if processes else {name for name in modules if any(_below(each, name) for each in ON_DEMAND)}
    used = set().union(*(named.get(protocol, of_any) for protocol in protocols))
    return reach(imports, used | modules.keys() - reach(imports, of_any) - on_demand)


def own_modules(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return the own modules of every package that describes protocols, by the name of the package."""
    packages = {_below(PROTOCOLS, name) for name, module in modules.items() if module.describes} - {""}
    own: dict[str, set[str]] = {package: set() for package in packages}
    for name in modules:
        if (package := _below(PROTOCOLS, name) or _below(MODELS, name)) in packages:
            own[package].add(name)
    return own


def _below(package: str, name: str) -> str:
    """Return the part of a dotted name that follows a package's name; empty if the name is not in the package."""
    return name.removeprefix(f"{package}.").split(".")[0] if name.startswith(f"{package}.") else ""


def resolve_names(names: Iterable[str], modules: Mapping[str, Module]) -> set[str]:
    """Return the modules that are imported if these names are: they themselves, and all packages around them."""
    around = {name[:end] for name in names for end in (*(dot.start() for dot in re.finditer(r"\.", name)), len(name))}
    return {found for name in around for found in (name, f"{name}.__init__") if found in modules}


def reach(imports: Mapping[str, set[str]], start: Collection[str]) -> set[str]:
    """Return the modules at the start and all that they import, directly or not."""
    reached = set(start)
    ahead = reached
    while ahead:
        ahead = set().union(*(imports[name] for name in ahead)) - reached
        reached |= ahead
    return reached


def read_modules(root: Path) -> dict[str, Module]:
    """Read the modules of ``CODE``.

    Args:
        root: a checkout, or a zip of its packages.

    Returns:
        The modules by their dotted names; those of packages end with ``__init__``.
    """
    return {name: _read(name, content) for name, content in _all_sources(root)}


def _place(root: Path) -> Path | zipfile.Path:
    return zipfile.Path(root) if root.is_file() else root


def _all_sources(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files of ``CODE``, with their dotted names."""
    place = _place(root)
    for each in CODE:
        yield from _sources(place.joinpath(*each.split("/")), each)


def _sources(place: Path | zipfile.Path, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files in a place, with their dotted names."""
    if place.is_dir():
        for inner in place.iterdir():
            yield from _sources(inner, f"{path}/{inner.name}")
    elif path.endswith(".py"):
        yield path.removesuffix(".py").replace("/", "."), place.read_bytes()


def _read(name: str, content: bytes) -> Module:
    tree = ast.parse(content)
    nodes = list(ast.walk(tree))
    describes = {protocol for node in nodes if (protocol := _described(node))}
    imports = {imported for node in nodes for imported in _imported(node, name)}
    # ``ascii`` and no ``repr``, which shows a character or its number, depending on the version of Unicode.
    digest = hashlib.sha256(ascii(_plain(tree)).encode()).digest()
    return Module(digest, frozenset(describes), frozenset(imports))


def _described(node: ast.AST) -> str | None:
    """Return the name of the protocol that a call of ``Description`` describes, if it is a literal."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Description":
        for keyword in node.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return None


def _imported(node: ast.AST, module: str) -> Iterator[str]:
    """Yield the dotted names that a statement of a module imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        around = module.split(".")[: -node.level] if node.level else []
        yield from (".".join(filter(None, (*around, node.module, alias.name))) for alias in node.names)


def _plain(node: object) -> object:
    """Return a syntax tree as nested tuples, the same in every version of Python that can parse it.

    Positions are left out, and so are texts as statements, fields without a value, and empty pieces of f-strings.
    Versions of Python add fields, and 3.12.1 adds empty pieces.
    """
    if isinstance(node, ast.JoinedStr):
        pieces = [each for each in node.values if not (isinstance(each, ast.Constant) and each.value == "")]
        return "JoinedStr", _plain(pieces)
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return (type(node).__name__, *((name, _plain(value)) for name, value in fields))
    if isinstance(node, list):
        return tuple(_plain(each) for each in node if not _is_text(each))
    return node


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
