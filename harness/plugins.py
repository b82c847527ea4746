"""The plugins of a command: ``--plugin FILE``, and the key ``plugins`` of the experiment or study.

A plugin changes which keys an experiment may have, so a command names its plugins before it imports anything that reads
experiments. ``peer.plugins`` loads them in every process of the command.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.errors import ExperimentError
from harness.experiment.document import read_toml
from peer.plugins import VARIABLE, loaded, named_files

KEY = "plugins"

EXPERIMENT_VERBS = ("check", "plan", "run", "sweep")
"""The verbs that load the plugins of the files that they are given."""

VERBS = (*EXPERIMENT_VERBS, "tables", "report", "compare", "replay", "inspect", "import")
"""The verbs with ``--plugin``. Those after the first ones read runs or data, which never name code to import."""


def declare_plugin(parser: argparse.ArgumentParser) -> None:
    """Declare ``--plugin``."""
    help_text = "load what a Python file or package folder adds; repeatable"
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE", help=help_text)


def name_plugins(verb: str | None, words: Sequence[str]) -> list[str]:
    """Tell this process and its children which plugins to load.

    Args:
        verb: of the command line.
        words: the command line.

    Returns:
        The command line without ``--plugin``, if the verb has this option.

    Raises:
        PluginError: one of them cannot be loaded.
    """
    if verb not in VERBS:
        return list(words)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare_plugin(parser)
    given, rest = parser.parse_known_args(words)
    files = [Path(word) for word in rest if word.endswith(".toml")] if verb in EXPERIMENT_VERBS else []
    paths = [*named_files(), *(str(Path(path).resolve()) for path in given.plugin)]
    paths += [path for file in files for path in _named_in(file)]
    if paths:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(paths))
        loaded()  # before a registry is imported: a plugin that imports one is then refused, whichever it is
    return rest


def take_plugins(document: dict[str, Any], file: Path) -> None:
    """Remove the key ``plugins`` from a document, and check that this command has loaded them.

    Raises:
        ExperimentError: it is no list of paths, or the command did not know of one when it started.
    """
    given = document.pop(KEY, [])
    if not isinstance(given, list) or not all(isinstance(path, str) for path in given):
        raise ExperimentError(f"$.{KEY}", "expected a list of paths")
    known = {plugin.origin.path for plugin in loaded()}
    for path in given:
        if str((file.parent / path).resolve()) not in known:
            problem = f"{path} was not loaded when the command started; set the key in a file *.toml, or use --plugin"
            raise ExperimentError(f"$.{KEY}", problem)


def _named_in(file: Path) -> Iterator[str]:
    """Yield the absolute paths of the plugins that a file names. The loader reports what is wrong with a file."""
    try:
        given = read_toml(file).get(KEY)
    except ExperimentError:
        return
    if isinstance(given, list):
        yield from (str((file.parent / path).resolve()) for path in given if isinstance(path, str))
