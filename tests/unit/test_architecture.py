"""The import rules and the rules for tests hold, and the checkers would notice if they did not."""

import ast
import contextlib
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.sources import CHECKOUT, imports_of

ROOMS = ("peer", "topologies", "harness", "metrics")
LINT = (Path(sys.executable).parent / "lint-imports").as_posix()

VIOLATIONS = {
    "peer imports harness": ("peer/runtime", "import harness.errors"),
    "peer imports topologies": ("peer", "from topologies import model"),
    "topologies imports peer": ("topologies", "import peer.trace"),
    "metrics imports harness": ("metrics", "from harness.errors import TrellisError"),
    "metrics imports the driver": ("metrics", "import peer.instances.spec"),
    "a table imports PySpark": ("metrics/tables", "from pyspark.sql import SparkSession"),
    "a check imports the session": ("metrics/checks", "def f():\n    import metrics.session"),
    "core imports asyncio": ("peer/core", "import asyncio"),
    "core imports time": ("peer/core", "from time import monotonic_ns"),
    "core imports socket in a function": ("peer/core", "def f():\n    import socket"),
    "core imports a protocol": ("peer/core", "from peer.protocols import registry"),
    "a protocol imports asyncio": ("peer/protocols", "import asyncio"),
    "core imports the driver, which imports asyncio": ("peer/core", "import peer.runtime.violation"),
    "a plane imports the experiment file": ("harness/planes/userspace", "import harness.experiment.form"),
    "doctor imports a plane, not its description": ("harness/doctor", "import harness.planes.userspace.handle"),
    "the simulator imports a testbed": ("harness/simulator", "from harness.testbeds import base"),
    "studies import the stages": ("harness/studies", "import harness.stages.analysis"),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LINT, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the rooms' code, in which a test may break a rule."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copy(CHECKOUT / ".importlinter", folder)
    for room in ROOMS:
        shutil.copytree(CHECKOUT / room, folder / room, ignore=lambda path, names: _not_code(Path(path), names))
    return folder


def _not_code(folder: Path, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py") and not (folder / name / "__init__.py").exists()]


def test_the_rules_hold(house: Path) -> None:
    result = lint(house)
    assert result.returncode == 0, result.stdout.partition("Broken contracts")[2]
    assert "0 broken" in result.stdout


def test_every_violation_is_found(house: Path, tmp_path: Path) -> None:
    """All are planted at once, each in a module of its own, since one look at all imports takes seconds."""
    shutil.copytree(house, broken := tmp_path / "house")
    (broken / "peer/runtime/violation.py").write_text("import asyncio\n")
    modules = []
    for number, (folder, code) in enumerate(VIOLATIONS.values()):
        (broken / folder / f"violation{number}.py").write_text(code + "\n")
        modules.append(f"{folder.replace('/', '.')}.violation{number} ")
    told = lint(broken)
    assert told.returncode != 0
    contracts = told.stdout.partition("Broken contracts")[2]
    assert [name for name, module in zip(VIOLATIONS, modules, strict=True) if module not in contracts] == []


def global_randomness(source: str) -> list[int]:
    """The lines that use the random module for anything but ``random.Random``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            found += [node.lineno for alias in node.names if alias.name != "Random"]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            found += [node.lineno] if node.attr != "Random" else []
    return found


SANS_IO = [path for room in ("core", "protocols") for path in sorted(CHECKOUT.glob(f"peer/{room}/**/*.py"))]


@pytest.mark.parametrize("path", SANS_IO, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_core_draws_from_seeded_generators_only(path: Path) -> None:
    assert global_randomness(path.read_text()) == []


@pytest.mark.parametrize("code", ["import random\nrandom.shuffle([])", "from random import choice"])
def test_global_randomness_is_found(code: str) -> None:
    assert global_randomness(code)


def test_seeded_randomness_is_let_through() -> None:
    assert not global_randomness("import random\nfrom random import Random\nx = random.Random(1)\nx.random()")


NAMES_PYTHON = {
    "harness/interpreter.py": "the one function that starts this Python",
    "peer/testing/hash_seeds.py": "for tests; it looks for modules only where the test does",
    "metrics/session.py": "Spark takes a path and sets PYTHONSAFEPATH for its workers",
}


def names_python(source: str) -> bool:
    """Whether code names this Python's executable, with which a module of the working directory could be imported."""
    return "executable" in source and any(
        (isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable")
        or (isinstance(node, ast.ImportFrom) and node.module == "sys" and "executable" in {a.name for a in node.names})
        for node in ast.walk(ast.parse(source))
    )


@pytest.mark.parametrize("room", [*ROOMS, "playbooks"])
def test_python_is_started_by_one_function(room: str) -> None:
    named = {
        path.relative_to(CHECKOUT).as_posix()
        for path in (CHECKOUT / room).rglob("*.py")
        if names_python(path.read_text())
    }
    assert named == {path for path in NAMES_PYTHON if path.startswith(f"{room}/")}


@pytest.mark.parametrize("code", ["import sys\nprint([sys.executable])", "from sys import executable"])
def test_a_start_of_python_is_found(code: str) -> None:
    assert names_python(code)


EXTRAS_OF_ROOM = {
    "peer": (),
    "topologies": ("topologies",),
    "metrics": ("topologies", "metrics"),
    "harness": ("topologies", "metrics", "harness", "live"),
}


def imported_packages(path: Path) -> set[str]:
    """The top-level names of all absolute imports of a source."""
    found: set[str] = set()
    for node in imports_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


def normalized(distribution: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", distribution)[0].lower().replace("_", "-")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_its_extras_install(room: str) -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][extra] for extra in EXTRAS_OF_ROOM[room]]
    declared = {normalized(name) for names in [project["dependencies"], *extras] for name in names}
    owners = packages_distributions()
    for path in sorted((CHECKOUT / room).rglob("*.py")):
        foreign = imported_packages(path) - set(sys.stdlib_module_names) - set(ROOMS)
        for package in foreign:
            assert declared & {normalized(owner) for owner in owners[package]}, f"{path} imports {package}"


class RulesForTests(ast.NodeVisitor):
    """What a test, or a program that one runs, may not do: use private names, or change where modules are found.

    Private is each name that begins with one underscore. It is used by reading or setting it on anything but ``self``,
    ``cls`` and a module of the standard library, by importing it, and by naming it to ``setattr`` or ``patch``.

    Attributes:
        broken: (line, what) of each breach.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.broken: list[tuple[int, str]] = []
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
        bound = {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
        self.not_ours = {"self", "cls"} | (bound & set(sys.stdlib_module_names))
        self.visit(tree)

    def note(self, node: ast.expr | ast.stmt, name: str) -> None:
        if name.startswith("_") and not name.startswith("__") and name != "_":
            self.broken.append((node.lineno, name))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id in self.not_ours):
            self.note(node, node.attr)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.note(node, alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        if called.rpartition(".")[2] in ("setattr", "getattr", "delattr", "patch", "object"):
            for given in node.args[:2]:
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    self.note(node, given.value.rpartition(".")[2])
            if [ast.unparse(given) for given in node.args[:2]] == ["sys", "'path'"]:
                self.broken.append((node.lineno, "sys.path"))
        if called.startswith("sys.path.") or called.endswith("syspath_prepend"):
            self.broken.append((node.lineno, called))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.check_targets(node, node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.check_targets(node, [node.target])

    def visit_Delete(self, node: ast.Delete) -> None:
        self.check_targets(node, node.targets)

    def check_targets(self, node: ast.stmt, targets: list[ast.expr]) -> None:
        if any(ast.unparse(target).startswith("sys.path") for target in targets):
            self.broken.append((node.lineno, "sys.path"))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """A string of several lines that is Python is a program, which a test runs in a process of its own."""
        if isinstance(node.value, str) and "\n" in node.value:
            with contextlib.suppress(SyntaxError, ValueError):
                inner = RulesForTests(ast.parse(node.value))
                self.broken += [(node.lineno + line - 1, what) for line, what in inner.broken]


SUSPECT = re.compile(r"\b_(?!_)\w|sys\.path|syspath_prepend|\bpath['\"]")
"""What a source has that breaks these rules; others need not be parsed."""


def breaches(source: str) -> list[tuple[int, str]]:
    return RulesForTests(ast.parse(source)).broken if SUSPECT.search(source) else []


PROGRAM = "\n".join(["import sys", "sys.path.append('')"])
TESTS = sorted(CHECKOUT.glob("tests/**/*.py"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_tests_use_no_private_names_and_leave_sys_path_alone(path: Path) -> None:
    assert breaches(path.read_text()) == []


@pytest.mark.parametrize(
    "code",
    [
        "node._parts",
        "net.pools[0]._open",
        "self.core._parts = {}",
        "from harness.stages.prometheus import _refuse",
        'monkeypatch.setattr(walk, "_CURSORS", 1)',
        'monkeypatch.setattr("harness.stages.prometheus._refuse", None)',
        'mock.patch("harness.stages.prometheus._refuse")',
        'mock.patch.object(walk, "_CURSORS")',
        'getattr(node, "_parts")',
        "sys.path.insert(0, '')",
        "sys.path += ['']",
        "sys.path = []",
        "sys.path[:0] = ['']",
        "del sys.path[0]",
        "monkeypatch.setattr(sys, 'path', [])",
        "monkeypatch.syspath_prepend('')",
        f"run({PROGRAM!r})",
    ],
)
def test_a_breach_of_the_tests_rules_is_found(code: str) -> None:
    assert breaches(code)


@pytest.mark.parametrize(
    "code",
    [
        "self._seen, cls._seen",
        "node.__dict__",
        "import os; os._exit(7)",
        "for _ in range(3): found.append(sys.path)",
        'monkeypatch.setattr(walk, "CURSORS", 1)',
        "from __future__ import annotations",
        "from benchmarks._synthetic_run import write_run",
    ],
)
def test_other_code_of_tests_is_let_through(code: str) -> None:
    assert not breaches(code)
