"""The figures of gossipsub-interop's own analysis, from the tables of a run and from lines: they must agree.

``python -m tests.interop_analysis RUN ANALYSIS`` compares the tables of a run with the file ``analysis.txt`` that the
script ``analyze_message_deliveries.py`` of gossipsub-interop wrote for the folder exported from that run.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from peer.interop.script import decode_script, list_publications

CUT_S = 2e-6
"""The analysis cuts each of two times to microseconds."""

MILLISECOND_S = 1e-3 + CUT_S
"""Trellis places a time that is printed in milliseconds at the end of its millisecond, the analysis at its start."""


class Figures(NamedTuple):
    """What the analysis says of a message.

    Attributes:
        all_s: from the first receipt at any node to the last first receipt of a node (s).
        half_s: likewise, to the node in the middle (s).
        duplicates: later receipts at the same nodes, divided by the number of nodes.
        reached: nodes with a receipt, divided by the number of nodes besides the publisher; at most 1.
    """

    all_s: float
    half_s: float
    duplicates: float
    reached: float

    def agrees(self, other: "Figures", tolerance_s: float = CUT_S) -> bool:
        """Whether two computations of the figures agree: times up to a tolerance, the others exactly."""
        times = ((self.all_s, other.all_s), (self.half_s, other.half_s))
        ratios = ((self.duplicates, other.duplicates), (self.reached, other.reached))
        exact = all(abs(one - another) < 1e-9 for one, another in ratios)
        return exact and all(abs(one - another) <= tolerance_s for one, another in times)


def summarise(receipts: Iterable[tuple[int, int, int]], nodes: int) -> dict[int, Figures]:
    """Return the figures of each message.

    Args:
        receipts: the message, the node and the instant (ns) of every receipt. The order does not matter.
        nodes: the number of nodes.
    """
    at_ns: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for message, node, instant_ns in receipts:
        at_ns[message][node].append(instant_ns)
    found = {}
    for message, by_node in at_ns.items():
        firsts = sorted(min(instants) for instants in by_node.values())
        later = sum(len(instants) - 1 for instants in by_node.values())
        found[message] = Figures(
            (firsts[-1] - firsts[0]) / 1e9,
            (firsts[len(firsts) // 2] - firsts[0]) / 1e9,
            later / nodes,
            min(1.0, len(firsts) / (nodes - 1)),
        )
    return found


def read_tables(run_dir: Path) -> dict[int, Figures]:
    """Return the figures of a run's tables, by the ``messageID`` of the run's script."""
    nodes = pq.read_table(run_dir / "tables/nodes.parquet", columns=["node"]).num_rows
    script = decode_script((run_dir / "params.json").read_bytes())
    numbers = [publication.publish.message_id for publication in list_publications(script, nodes)]
    columns = ["message_id", "dst_node", "log_recv_ns"]
    copies = pq.read_table(run_dir / "tables/copies.parquet", columns=columns).to_pylist()
    receipts = ((numbers[copy["message_id"] & 0xFFFFFFFF], copy["dst_node"], copy["log_recv_ns"]) for copy in copies)
    return summarise(receipts, nodes)


def read_lines(folder: Path) -> dict[int, Figures]:
    """Return the figures of the lines in a folder exported for the analysis, which reads the same."""
    receipts, nodes = [], set()
    for path in sorted((folder / "hosts").glob("*/*.stdout")):
        for said in _objects(path):
            if said.get("msg") == "PeerID":
                nodes.add(str(said["node_id"]))
            elif said.get("msg") == "Received Message":
                at_ns = round(datetime.fromisoformat(said["time"]).timestamp() * 1e6) * 1000
                receipts.append((int(said["id"]), int(path.parent.name.removeprefix("node")), at_ns))
    return summarise(receipts, len(nodes))


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def read_analysis(path: Path) -> dict[int, Figures]:
    """Return the figures that the analysis wrote, by ``messageID``."""
    found = {}
    for line in path.read_text().splitlines()[1:]:
        number, *values = line.split(", ")
        found[int(number)] = Figures(*(float(value.removesuffix("s")) for value in values))
    return found


def find_apart(ours: dict[int, Figures], theirs: dict[int, Figures], tolerance_s: float = CUT_S) -> list[int]:
    """Return the messages on which two computations disagree, or that only one of them has."""
    every = sorted(ours | theirs)
    both = ours.keys() & theirs
    return [number for number in every if number not in both or not ours[number].agrees(theirs[number], tolerance_s)]


def main(run_dir: str, analysis: str) -> int:
    """Print the messages on which the two disagree; return 1 if there is one."""
    ours, theirs = read_tables(Path(run_dir)), read_analysis(Path(analysis))
    apart = find_apart(ours, theirs)
    for number in apart:
        print(f"message {number}: tables {ours.get(number)}, analysis {theirs.get(number)}")
    print(f"{len(ours | theirs) - len(apart)} of {len(ours | theirs)} messages agree")
    return 1 if apart or not ours else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
