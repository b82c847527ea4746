"""The house's import rules hold, and the checker would notice if they did not."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
ROOMS = ("peer", "topologies", "harness", "metrics")
LINT = (Path(sys.executable).parent / "lint-imports").as_posix()

VIOLATIONS = {
    "peer imports harness": ("peer/runtime/violation.py", "import harness.errors"),
    "peer imports topologies": ("peer/violation.py", "from topologies import model"),
    "topologies imports peer": ("topologies/violation.py", "import peer.trace"),
    "metrics imports harness": ("metrics/violation.py", "from harness.errors import TrellisError"),
    "metrics imports the driver": ("metrics/violation.py", "import peer.runtime.spec"),
    "core imports asyncio": ("peer/core/violation.py", "import asyncio"),
    "core imports time": ("peer/core/violation.py", "from time import monotonic_ns"),
    "core imports socket in a function": ("peer/core/violation.py", "def f():\n    import socket"),
    "core imports a protocol": ("peer/core/violation.py", "from peer.protocols import registry"),
    "a protocol imports asyncio": ("peer/protocols/violation.py", "import asyncio"),
    "core imports the driver, which imports asyncio": ("peer/core/violation.py", "import peer.runtime.violation"),
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


@pytest.mark.parametrize(("path", "code"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_is_found(house: Path, path: str, code: str) -> None:
    driver, violation = house / "peer/runtime/violation.py", house / path
    driver.write_text("import asyncio\n")
    violation.write_text(code + "\n")
    try:
        result = lint(house)
    finally:
        violation.unlink()
        driver.unlink(missing_ok=True)
    assert result.returncode != 0
    assert "violation" in result.stdout.partition("Broken contracts")[2]


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


EXTRAS_OF_ROOM = {
    "peer": (),
    "topologies": ("topologies",),
    "metrics": ("topologies", "metrics"),
    "harness": ("topologies", "metrics", "harness"),
}


def imported_packages(source: str) -> set[str]:
    """The top-level names of all absolute imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
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
        foreign = imported_packages(path.read_text()) - set(sys.stdlib_module_names) - set(ROOMS)
        for package in foreign:
            assert declared & {normalized(owner) for owner in owners[package]}, f"{path} imports {package}"
