"""The command line: ``trellis VERB ...``.

Verbs are imported when they are used, so that a verb starts as fast as its own imports allow.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from harness.doctor.programs import program_path
from harness.errors import TrellisError
from harness.interruption import describe, exit_code, heed_sigterm
from metrics.rundir import RunDirError

DESCRIPTION = "An emulated-WAN testbed for peer-to-peer publish/subscribe overlays."

VERBS = {
    "doctor": "probe this machine, say what each finding means and how to mend it",
    "check": "validate an experiment file or a study",
    "plan": "resolve every default and seed of an experiment, predict what it needs",
    "run": "run an experiment, analyse it, and print the verdict",
    "tables": "compute the tables of a finished run",
    "report": "analyse a finished run and write its report",
    "sweep": "simulate a study's grid of experiments, tables and figures included",
    "compare": "set runs side by side",
    "serve": "show a run's metrics and report on loopback",
    "inspect": "print the overlay frames of a capture",
    "replay": "live recorded peers' lives again and compare every effect",
    "import": "turn published latency data into a matrix",
    "bench": "run the benchmarks and print their ratios",
    "test": "run the tests",
    "clean": "remove what runs and set-up left in this checkout",
}


def main(argv: list[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit code: 0 done (for ``run``: valid), 1 failed or invalid, 2 usage, 3 suspect, 130 after Ctrl-C, 143
        after SIGTERM.
    """
    argv = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in argv if not word.startswith("-")), None)
    heed_sigterm()
    os.environ["PATH"] = program_path()  # for all that is started from here on: what the doctor finds is what runs
    try:
        return _run(argv, chosen)
    except (TrellisError, RunDirError) as error:
        print(f"trellis {chosen}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # as in "trellis compare ... | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as interrupt:
        print(f"trellis {chosen}: {describe(interrupt)}", file=sys.stderr)
        return exit_code(interrupt)


def _run(argv: list[str], chosen: str | None) -> int:
    parser = _parser(chosen)
    arguments = parser.parse_args(argv)
    if chosen not in VERBS:
        parser.print_help()
        return 2
    return int(import_module(f"harness.commands.{_module(chosen)}").run(arguments))


def _module(verb: str) -> str:
    return "importing" if verb == "import" else verb


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser, with the arguments of the chosen verb only: the others stay unimported."""
    parser = argparse.ArgumentParser(prog="trellis", description=DESCRIPTION)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for verb, text in VERBS.items():
        sub = verbs.add_parser(verb, help=text, description=text)
        if verb == chosen:
            import_module(f"harness.commands.{_module(verb)}").add_arguments(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
