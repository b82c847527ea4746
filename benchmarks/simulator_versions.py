"""How long the simulator of this checkout takes, next to that of an earlier commit, for the same simulations.

Each simulation runs in a process of its own, with the code of either version, in the order earlier, present, present,
earlier. What is compared is processor time, since other work on the machine changes the duration much more. Both must
handle as many events and send as many frames and bytes; ``same`` says whether they do.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
EARLIER = "fe841ba"
"""Before the queue of slots: the simulator that took 554 s for 10,000 nodes of StAN."""

CASES = {"stan": (1_000, 3.0), "spidercast": (600, 20.0), "topiary": (500, 10.0)}
"""Protocol -> nodes, and virtual seconds."""

TOPIARY_MESSAGES = 300


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every case and print the ratios; 1 if the versions did not simulate the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--against", default=EARLIER, metavar="COMMIT", help="the earlier version (default: %(default)s)"
    )
    parser.add_argument("--pairs", type=int, default=4, help="runs of each version per case (default: %(default)s)")
    parser.add_argument("--case", action="append", choices=CASES, help="only this protocol; may be given several times")
    parser.add_argument("--nodes", type=int, help="instead of the case's number of nodes")
    parser.add_argument("--seconds", type=float, help="instead of the case's virtual seconds")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one:
        print(json.dumps(simulate(given.one, given.nodes, given.seconds)))
        return 0
    result: dict[str, float] = {}
    with checkout_of(given.against) as earlier:
        for case in given.case or CASES:
            nodes, seconds = given.nodes or CASES[case][0], given.seconds or CASES[case][1]
            runs: dict[Path, list[dict[str, float]]] = {earlier: [], CHECKOUT: []}
            for pair in range(given.pairs):
                for tree in (earlier, CHECKOUT) if pair % 2 == 0 else (CHECKOUT, earlier):
                    runs[tree].append(_in_own_process(tree, case, nodes, seconds))
            found = compare(runs[earlier], runs[CHECKOUT])
            result |= {f"{case}_{nodes}_{name}": value for name, value in found.items()}
    print(json.dumps(result) if given.json else "\n".join(f"{name:>44}  {value:.4g}" for name, value in result.items()))
    return 0 if all(value for name, value in result.items() if name.endswith("_same")) else 1


def compare(earlier: Sequence[dict[str, float]], present: Sequence[dict[str, float]]) -> dict[str, float]:
    """Microseconds per event of both versions, and the ratio of the present one's to the earlier one's.

    Args:
        earlier: what ``simulate`` returned with the earlier version, pair by pair.
        present: the same with the present one.
    """
    ratios = [after["cpu_s"] / before["cpu_s"] for before, after in zip(earlier, present, strict=True)]
    runs = [*earlier, *present]
    return {
        "earlier_us_per_event": statistics.median(1e6 * run["cpu_s"] / run["events"] for run in earlier),
        "present_us_per_event": statistics.median(1e6 * run["cpu_s"] / run["events"] for run in present),
        "present_over_earlier": statistics.median(ratios),
        "least_ratio": min(ratios),
        "greatest_ratio": max(ratios),
        "same": float(len({(run["events"], run.get("frames"), run.get("bytes")) for run in runs}) == 1),
    }


def simulate(protocol: str, nodes: int, seconds: float) -> dict[str, float]:
    """Simulate the start of an overlay with the modules on the path; processor seconds, and what was simulated.

    Topiary's nodes publish ``TOPIARY_MESSAGES`` per epoch. Its time is that of whole epochs and of the planning.
    """
    simulator: Any = importlib.import_module("benchmarks.simulator")
    topiary: Any = importlib.import_module("benchmarks.topiary")
    if protocol == "topiary":
        topiary.NODES, topiary.MESSAGES = nodes, TOPIARY_MESSAGES
        start_s = time.process_time()
        _, events = topiary._time_epochs(protocol, topiary.STUDY_TOPICS, round(seconds / topiary.EPOCH_S))
        return {"cpu_s": time.process_time() - start_s, "events": events}
    simulation = simulator._simulate(protocol, nodes)
    start_s = time.process_time()
    simulation.run(round(seconds * 1e9))
    return {
        "cpu_s": time.process_time() - start_s,
        "events": simulation.handled,
        "frames": sum(simulation.sent_frames),
        "bytes": sum(simulation.sent_bytes),
    }


@contextmanager
def checkout_of(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "-C", CHECKOUT, "archive", commit], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def _in_own_process(tree: Path, case: str, nodes: int, seconds: float) -> dict[str, float]:
    argv = [sys.executable, "-P", __file__, "--one", case, "--nodes", str(nodes), "--seconds", str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(argv, env=environment, cwd=tree, capture_output=True, text=True, check=True)
    numbers: dict[str, float] = json.loads(done.stdout)
    print(f"{tree.name} {case}: {numbers['cpu_s']:.2f} s", file=sys.stderr, flush=True)
    return numbers


if __name__ == "__main__":
    sys.exit(main())
