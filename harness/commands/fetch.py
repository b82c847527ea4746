"""``trellis fetch [NAME ...]``: get the files of implementations of peers, or list the implementations."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="an implementation, or the path of its file")


def run(arguments: argparse.Namespace) -> int:
    """Fetch what the names mean; without a name, list the implementations. Return 0.

    Raises:
        ExperimentError: there is no such implementation.
        FetchError: a command failed, or a file is not the one that the implementation names.
    """
    from harness.experiment.implementations import find_implementation, known_names
    from harness.setup.fetching import fetch
    from harness.terminal import say

    for name in arguments.names or known_names():
        found = find_implementation(name, name)
        if arguments.names:
            say(f"{found.name}: {fetch(found)}")
        else:
            say(f"{found.name:<12} {found.said.version}; {'fetched' if found.is_there else 'not fetched'}")
    return 0
