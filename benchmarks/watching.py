"""Whether an open live page changes a run: pairs of runs of one experiment and seed, with a page and without.

The page is read as a browser reads it: all snapshots, to the end of the run. With ``--browser``, Chromium without a
window shows it, 1400 x 1000 pixels, on the machine of the run. Which run of a pair comes first changes from pair to
pair. Each run is kept below ``--out`` and not made again. The table has the verdicts, and the mean difference of each
number (with the page - without), with its 95 % confidence interval.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.parse import parse_qs, urlsplit

from metrics.intervals import interval

QUICKSTART = Path(__file__).parents[1] / "playbooks/experiments/quickstart.toml"
NUMBERS = ("lateness_ms_p99", "lateness_ms_p99_worst", "receive_delay_ms_p99", "wire_error_ms_p99", "delivery_ratio")
"""The headline numbers that are compared, as far as runs have them."""

ADDRESS = "live: "

BROWSER = (
    *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"),
    *("--disable-background-networking", "--remote-debugging-port=0"),
)
"""The command that shows a page. A browser without a window ends at once if nothing may control it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make the runs that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=QUICKSTART, help="the experiment (default: the quickstart)")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--browser", action="store_true", help="show the page in Chromium")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    pairs = []
    see = browse if given.browser else read
    for seed in range(given.first_seed, given.first_seed + given.pairs):
        order = (None, see) if seed % 2 else (see, None)
        found = {look is not None: make(given.file, given.out, seed, look) for look in order}
        pairs.append((found[False], found[True]))
    result = compare(pairs)
    print(json.dumps(result) if given.json else "\n".join(table(result)))
    return 0


Look = Callable[[str], AbstractContextManager[None]]
"""Looks at the page of an address in its context."""


def make(file: Path, out: Path, seed: int, look: Look | None) -> dict[str, Any]:
    """Return the summary of a run; the run is made unless it has one."""
    run_dir = out / f"{seed}-{'alone' if look is None else 'watched'}"
    if not (run_dir / "summary.json").exists():
        out.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "harness.cli", "run", str(file), "--seed", str(seed)]
        command += ["--out", str(run_dir), *([] if look is None else ["--live"])]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        with ExitStack() as looking:
            for line in process.stderr:
                print(line, end="", file=sys.stderr, flush=True)
                if look is not None and line.startswith(ADDRESS):
                    looking.enter_context(look(line.removeprefix(ADDRESS).strip()))
            process.wait()  # its exit code is the verdict
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_bytes())
    return summary


@contextmanager
def read(address: str) -> Iterator[None]:
    """Read the snapshots of a page until its server ends."""
    parts = urlsplit(address)
    header = {"Authorization": f"Bearer {parse_qs(parts.query)['token'][0]}"}

    def follow() -> None:
        connection = http.client.HTTPConnection(parts.netloc)
        connection.request("GET", "/events", headers=header)
        for _ in connection.getresponse():
            continue

    threading.Thread(target=follow, daemon=True).start()
    yield


@contextmanager
def browse(address: str) -> Iterator[None]:
    """Show a page in Chromium."""
    with tempfile.TemporaryDirectory(prefix="trellis-bench-", ignore_cleanup_errors=True) as profile:
        command = [*BROWSER, f"--user-data-dir={profile}", address]
        silent = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def compare(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the verdicts of both kinds of runs, and the differences of their numbers.

    Args:
        pairs: the summaries of each pair: without the page, and with it.
    """
    verdicts = [dict(Counter(summary["verdict"] for summary in kind)) for kind in zip(*pairs, strict=True)]
    differences = {}
    for name in NUMBERS:
        values = [(alone["headline"].get(name), watched["headline"].get(name)) for alone, watched in pairs]
        known = [(before, after) for before, after in values if before is not None and after is not None]
        if known:
            found = interval([after - before for before, after in known])
            differences[name] = {
                "pairs": len(known),
                "alone": mean(before for before, _ in known),
                "difference": found.mean,
                "half_width": found.half_width,
            }
    return {"alone": verdicts[0], "watched": verdicts[1], "differences": differences}


def table(result: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table for people."""
    lines = [f"verdicts without the page: {result['alone']}, with it: {result['watched']}"]
    lines += ["| number | pairs | without the page | difference with it |", "|---|---|---|---|"]
    for name, found in result["differences"].items():
        wide = "unknown" if found["half_width"] is None else f"{found['half_width']:.3g}"
        lines.append(f"| {name} | {found['pairs']} | {found['alone']:.4g} | {found['difference']:+.3g} ± {wide} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
