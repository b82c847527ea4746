"""The command line: ``trellis VERB ...``.

A verb's module is imported when the verb is used, so that no verb waits for the imports of another.
"""

import argparse
import os
import sys
from importlib import import_module
from typing import NoReturn

from harness.doctor.programs import program_path
from harness.errors import TrellisError, UsageError
from harness.interpreter import SAFE_PATH
from harness.interruption import describe, exit_code, heed_sigterm
from harness.plugins import VERBS as PLUGIN_VERBS
from harness.plugins import declare_plugin, name_plugins
from harness.terminal import one_line, say
from metrics.rundir import RunDirError
from metrics.storage import StoreError
from peer.plugins import PluginError

DESCRIPTION = "An emulated-WAN testbed for peer-to-peer publish/subscribe overlays."

VERBS = {
    "doctor": "check this machine and say how to fix each finding",
    "new": "make a package for a protocol of your own",
    "check": "validate an experiment or a study",
    "plan": "print an experiment with every default, and what its run needs",
    "run": "run an experiment, analyse the run and print the verdict",
    "watch": "show a run that goes on, in the terminal or in a browser",
    "tables": "compute the tables of a finished run, or of captures",
    "report": "analyse a finished run and write its report",
    "mn": "open Mininet's command line on the network of an experiment or a topology",
    "sweep": "make the runs of a study, and write its tables and figures",
    "compare": "print runs side by side",
    "fetch": "get the files of an implementation, or list the implementations",
    "copy": "copy a run to an object store or from one",
    "serve": "open the run's Prometheus database and its report on loopback",
    "machines": "make machines on this computer to try the remote testbed on",
    "inspect": "print the overlay frames of a capture",
    "replay": "show how messages of a run spread, or replay its recorded peers and compare every effect",
    "import": "read latencies, or traces of other programs, and write them in our forms",
    "export": "write a run's traces, or an experiment, in the form of another program",
    "bench": "run the benchmarks and print their ratios",
    "test": "run the tests",
    "clean": "remove runs, environment and caches from this checkout",
}

TAKEN_ONE_AT_A_TIME = {
    **dict.fromkeys(("check", "plan", "run", "sweep", "mn"), "file"),
    **dict.fromkeys(("report", "watch", "serve", "replay"), "run"),
    "inspect": "capture",
}
"""The verbs whose only argument without an option is one file, run or capture."""


def main(argv: list[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit code: 0 done (for ``run``: valid), 1 failed or invalid, 2 usage, 3 suspect (for ``compare``: a
        condition could not be judged), 4 a condition of ``compare --fail-if`` is met, 130 after Ctrl-C, 143 after
        SIGTERM.
    """
    argv = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in argv if not word.startswith("-")), None)
    heed_sigterm()
    os.environ["PATH"] = program_path()  # child processes start the programs that the doctor finds
    os.environ.update(SAFE_PATH)  # no child process imports modules from the working directory
    try:
        return _run(argv, chosen)
    except (TrellisError, RunDirError, StoreError, PluginError) as error:
        say(f"{_command(chosen)}: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # as in "trellis compare ... | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as interrupt:
        print(f"{_command(chosen)}: {describe(interrupt)}", file=sys.stderr)
        return exit_code(interrupt)


def _run(argv: list[str], chosen: str | None) -> int:
    argv = name_plugins(chosen, argv)  # before the verb's module is imported
    parser = _parser(chosen)
    if chosen is not None and chosen not in VERBS:
        raise UsageError(f"there is no verb '{chosen}'; trellis --help lists the verbs")
    arguments, unknown = parser.parse_known_args(argv)
    if getattr(arguments, "plugin", []):
        raise UsageError("expected --plugin FILE, with the option in full")
    if unknown:
        raise UsageError(_describe_unknown(chosen, unknown))
    if chosen is None:
        parser.print_help()
        return 2
    return int(import_module(f"harness.commands.{_module(chosen)}").run(arguments))


def _describe_unknown(verb: str | None, words: list[str]) -> str:
    """Return the error message for arguments that a verb does not take."""
    said = " ".join(words)
    if verb in TAKEN_ONE_AT_A_TIME and not any(word.startswith("-") for word in words):
        return f"takes one {TAKEN_ONE_AT_A_TIME[verb]} at a time; call it again for {said}"
    return f"unknown arguments: {said}; try: {_command(verb)} --help"


def _command(verb: str | None) -> str:
    return f"trellis {verb}" if verb in VERBS else "trellis"


def _module(verb: str) -> str:
    return "importing" if verb == "import" else verb


class _Parser(argparse.ArgumentParser):
    """A parser that raises usage errors, in the words of the other errors."""

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("invalid int value:", "expected an integer, got")
        raise UsageError(f"{message}; try: {self.prog} --help")


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser with the arguments of the chosen verb only; the modules of other verbs are not imported."""
    parser = _Parser(prog="trellis", description=DESCRIPTION)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for verb, text in VERBS.items():
        sub = verbs.add_parser(verb, help=text, description=text)
        if verb == chosen:
            import_module(f"harness.commands.{_module(verb)}").add_arguments(sub)
            if verb in PLUGIN_VERBS:
                declare_plugin(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
