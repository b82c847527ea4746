"""Whether an open live page changes a run: pairs of runs of one experiment and seed, with a page and without.

The page is read as a browser reads it: all snapshots, to the end of the run. Which run of a pair comes first changes
from pair to pair. Each run is kept below ``--out`` and not made again. The table has the verdicts, and the mean
difference of each number (with the page - without), with its 95 % confidence interval.
"""

import argparse
import http.client
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.parse import parse_qs, urlsplit

from metrics.intervals import interval

QUICKSTART = Path(__file__).parents[1] / "playbooks/experiments/quickstart.toml"
NUMBERS = ("lateness_ms_p99", "lateness_ms_p99_worst", "receive_delay_ms_p99", "wire_error_ms_p99", "delivery_ratio")
"""The headline numbers that are compared, as far as runs have them."""

ADDRESS = "live: "


def main(argv: Sequence[str] | None = None) -> int:
    """Make the runs that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=QUICKSTART, help="the experiment (default: the quickstart)")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    pairs = []
    for seed in range(1, given.pairs + 1):
        order = (False, True) if seed % 2 else (True, False)
        found = {watched: make(given.file, given.out, seed, watched=watched) for watched in order}
        pairs.append((found[False], found[True]))
    result = compare(pairs)
    print(json.dumps(result) if given.json else "\n".join(table(result)))
    return 0


def make(file: Path, out: Path, seed: int, *, watched: bool) -> dict[str, Any]:
    """Return the summary of a run; the run is made unless it has one."""
    run_dir = out / f"{seed}-{'watched' if watched else 'alone'}"
    if not (run_dir / "summary.json").exists():
        out.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "harness.cli", "run", str(file), "--seed", str(seed)]
        command += ["--out", str(run_dir), *(["--live"] if watched else [])]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            if line.startswith(ADDRESS):
                threading.Thread(target=read_page, args=[line.removeprefix(ADDRESS).strip()], daemon=True).start()
        process.wait()  # its exit code is the verdict
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_bytes())
    return summary


def read_page(address: str) -> None:
    """Read the snapshots of a page until its server ends."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {parse_qs(parts.query)['token'][0]}"})
    for _ in connection.getresponse():
        continue


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
