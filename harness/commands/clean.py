"""``trellis clean``: remove runs, environment and caches from this checkout."""

import argparse
import shutil
from pathlib import Path

from harness.doctor.collisions import CHECKOUT

RUNS = ("runs",)
VENV = (".venv", ".trellis")
CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".import_linter_cache", ".hypothesis", "build", "dist")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", action="store_true", help="remove the run directories below runs/ of this checkout")
    parser.add_argument("--venv", action="store_true", help="remove the environment; the next command sets it up again")
    parser.add_argument("--caches", action="store_true", help="remove the caches of tests, linters and builds")
    parser.add_argument("--all", action="store_true", help="remove all of these")


def run(arguments: argparse.Namespace) -> int:
    """Remove what the options name; without an option, list what could be removed. Return 0."""
    choice = {"--runs": RUNS, "--venv": VENV, "--caches": CACHES}
    chosen = [option for option in choice if arguments.all or getattr(arguments, option.removeprefix("--"))]
    for option in chosen or choice:
        for path in leftovers(CHECKOUT, choice[option]):
            size_mib = size_bytes(path) / 2**20
            if chosen:
                remove(path)
            print(f"{'removed' if chosen else 'would remove'} {path} ({size_mib:.1f} MiB, {option})")
    if not chosen:
        print("nothing was removed; to remove something, use --runs, --venv, --caches or --all")
    return 0


def leftovers(checkout: Path, names: tuple[str, ...]) -> list[Path]:
    """Return the paths of those names that exist in the checkout."""
    return [checkout / name for name in names if (checkout / name).exists() or (checkout / name).is_symlink()]


def size_bytes(path: Path) -> int:
    """Return the size of all files below ``path``, without following symbolic links."""
    return sum(file.lstat().st_size for file in (path.rglob("*") if not path.is_symlink() else [path]))


def remove(path: Path) -> None:
    """Remove a file or a folder. Of a symbolic link, remove the link only."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path)
