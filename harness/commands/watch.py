"""``trellis watch RUN``: show a run that goes on, in the terminal or in a browser, until it is over."""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec.json import Decoder
from rich.console import Console

from harness.commands.run import print_outcome
from harness.errors import UsageError
from harness.live.idle import start_idle
from harness.live.opening import live_page, require_extra, require_processes
from harness.live.planned import LivePlan
from harness.live.terminal import read_snapshots, show
from harness.stages.analysis import EXIT_CODES
from harness.terminal import say
from metrics.rundir import RunDir, read_document, require_run_dir
from metrics.rundir.files import MANIFEST_FILE, PLAN_FILE, SUMMARY_FILE
from metrics.storage import local_path

FAILED = 1
"""The exit code if the running stage failed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=local_path, metavar="RUN", help="directory of a run, which may go on")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--page", action="store_true", help="serve a page on loopback instead")
    shown.add_argument("--json", action="store_true", help="print each snapshot as a line of JSON instead")
    parser.add_argument("--port", type=_port, default=0, help="port of the page (default: a free port)")
    parser.add_argument("--keep", action="store_true", help="keep the page when the run is over, until Ctrl-C")


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Show the run until it is over.

    Returns:
        The exit code of ``trellis run`` if the run was analysed; 0 if not, and 1 if it failed.
    """
    run_dir: Path = arguments.run
    if (arguments.port or arguments.keep) and not arguments.page:
        raise UsageError("--port and --keep are about the page; add --page")
    if arguments.page:
        require_extra("--page")
    require_run_dir(run_dir)
    if not (run_dir / MANIFEST_FILE).exists():
        plan = read_document(run_dir / PLAN_FILE, Decoder(LivePlan).decode)
        require_processes(str(run_dir), plan.experiment.testbed)
    if arguments.page:
        status = _serve(run_dir, arguments.port, stays=arguments.keep)
    else:
        status = _print_json(run_dir) if arguments.json else _show(run_dir)
    return status or _conclude(run_dir, is_quiet=arguments.json)


def _serve(run_dir: Path, port: int, *, stays: bool) -> int:
    """Serve the page, and return the server's status."""
    with live_page(run_dir, port, stays=stays) as page:
        say(f"live  {page.address}", "Only someone with the token in this address can see the run.", "Ctrl-C stops it.")
        return page.wait()


def _show(run_dir: Path) -> int:
    """Show the run in the terminal, and return the status of the process that reads it."""
    with _reading(run_dir) as process:
        assert process.stdout is not None
        show(read_snapshots(process.stdout), Console())
        return process.wait()


def _print_json(run_dir: Path) -> int:
    """Print each snapshot as it comes, and return the status of the process that reads the run."""
    with _reading(run_dir) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        return process.wait()


@contextlib.contextmanager
def _reading(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the process that prints snapshots. It ends with the context."""
    process = start_idle("harness.live.stream", [str(run_dir)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _conclude(run_dir: Path, *, is_quiet: bool) -> int:
    """Print how a run that is over ended, and return the exit code."""
    if not (run_dir / MANIFEST_FILE).exists():
        return FAILED
    if not (run_dir / SUMMARY_FILE).exists():
        return 0
    summary = RunDir(run_dir).summary
    if not is_quiet:
        print_outcome(run_dir, summary, as_json=False)
    return EXIT_CODES[summary.verdict]
