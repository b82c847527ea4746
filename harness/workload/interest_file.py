"""Interests from a file: a line a pair of node and topic, or a line a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from harness.errors import ExperimentError
from harness.workload.lines import read_lines

Number = Annotated[int, Meta(ge=0)]


class InterestLine(Struct, forbid_unknown_fields=True, frozen=True):
    """A line of a JSON file: a node and topics that it subscribes to."""

    node: Number
    topics: tuple[Number, ...]


def read_interests(path: Path, nodes: int, topics: int) -> tuple[tuple[int, ...], ...]:
    """Every node's topics in rising order; a node that the file does not name has none.

    ``.jsonl`` and ``.json`` files hold lines such as ``{"node": 3, "topics": [1, 7]}``; any other file is CSV with the
    columns node and topic, whose first line may name them. A node may stand on several lines, a pair only once.

    Raises:
        ExperimentError: the place is the file and the line.
    """
    found: list[set[int]] = [set() for _ in range(nodes)]
    for number, node, topic in _pairs(path):
        problem = ""
        if node >= nodes:
            problem = f"node {node}: the run has the nodes 0 .. {nodes - 1}"
        elif topic >= topics:
            problem = f"topic {topic}: the workload has the topics 0 .. {topics - 1}"
        elif topic in found[node]:
            problem = f"node {node} subscribes to topic {topic} twice"
        if problem:
            raise ExperimentError(f"{path}:{number}", problem)
        found[node].add(topic)
    return tuple(tuple(sorted(chosen)) for chosen in found)


def _pairs(path: Path) -> Iterator[tuple[int, int, int]]:
    """(line number, node, topic) of every pair in the file."""
    reads_json = path.suffix in (".jsonl", ".json")
    for number, line in read_lines(path):
        if reads_json:
            try:
                entry = msgspec.json.decode(line, type=InterestLine)
            except msgspec.DecodeError as error:
                raise ExperimentError(f"{path}:{number}", str(error)) from None
            yield from ((number, entry.node, topic) for topic in entry.topics)
        elif number > 1 or line.strip().lower() != "node,topic":
            yield number, *_parse_pair(line, f"{path}:{number}")


def _parse_pair(line: str, place: str) -> tuple[int, int]:
    words = [word.strip() for word in line.split(",")]
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise ExperimentError(place, f"expected node,topic as two numbers, got {line.strip()[:40]!r}")
    return int(words[0]), int(words[1])
