"""Reads the files of a workload: interests, and sessions.

Blank lines and lines that begin with ``#`` are skipped, a cell of a CSV file may be quoted, and any file may be
gzipped.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from harness.errors import ExperimentError
from harness.experiment.document import input_errors
from harness.terminal import shorten
from topologies.reading import Row, parse_count, parse_number, read_text, split_rows

Recorded = list[tuple[float, float]]
"""A node's sessions in a trace, in order of time: from when to when it was up (s); infinite = until the end."""

Number = Annotated[int, Meta(ge=0)]

_OPEN_ENDS = ("inf", "+inf", "infinity")
"""The end of a session that lasts until the end of the trace, as pandas and others write it."""

_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z_ ()\[\]/]*")


class InterestLine(Struct, forbid_unknown_fields=True, frozen=True):
    """A line of a JSON file: a node and some of its topics."""

    node: Number
    topics: tuple[Number, ...]


def read_interests(path: Path, nodes: int, topics: int) -> tuple[tuple[int, ...], ...]:
    """Return every node's topics in ascending order; a node that the file does not name has none.

    ``.jsonl`` and ``.json`` files have lines such as ``{"node": 3, "topics": [1, 7]}``. Any other file is CSV with the
    columns node and topic, and may have a header. A node may be on several lines, but a pair only once.

    Raises:
        ExperimentError: the file is invalid; the place is the file and the line.
    """
    found: list[set[int]] = [set() for _ in range(nodes)]
    reads_json = {".jsonl", ".json"} & set(path.suffixes[-2:])
    for number, node, topic in _json_pairs(path) if reads_json else _csv_pairs(path):
        problem = ""
        if node >= nodes:
            problem = f"expected a node from 0 to {nodes - 1}, got {shorten(str(node))}"
        elif topic >= topics:
            problem = f"expected a topic from 0 to {topics - 1}, got {shorten(str(topic))}"
        elif topic in found[node]:
            problem = f"node {node} subscribes to topic {topic} twice"
        if problem:
            raise ExperimentError(f"{path}:{number}", problem)
        found[node].add(topic)
    return tuple(tuple(sorted(chosen)) for chosen in found)


def _json_pairs(path: Path) -> Iterator[tuple[int, int, int]]:
    """Yield (line number, node, topic) of every pair in a file of JSON lines."""
    decoder = msgspec.json.Decoder(InterestLine)
    for number, line in read_lines(path):
        try:
            entry = decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ExperimentError(f"{path}:{number}", str(error)) from None
        yield from ((number, entry.node, topic) for topic in entry.topics)


def _csv_pairs(path: Path) -> Iterator[tuple[int, int, int]]:
    """Yield (line number, node, topic) of every pair in a CSV file."""
    for number, cells in _without_header(read_rows(path)):
        counts = [parse_count(cell) for cell in cells]
        node, topic = counts if len(counts) == 2 else (None, None)
        if node is None or topic is None:
            raise ExperimentError(
                f"{path}:{number}", f"expected node,topic as two numbers, got {','.join(cells)[:40]!r}"
            )
        yield number, node, topic


def read_sessions(path: Path) -> list[Recorded]:
    """Return the sessions of each of a file's nodes, in the order of their first lines.

    The file is CSV with the columns node, from_s, to_s, and may have a header. A session that ends at ``inf`` is open.

    Raises:
        ExperimentError: the file is invalid; the place is the file and the line.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for number, cells in _without_header(read_rows(path)):
        name, *instants = cells
        session = _parse_session(instants)
        if session is None:
            problem = f"expected node,from_s,to_s with from < to, got {','.join(cells)[:40]!r}"
            raise ExperimentError(f"{path}:{number}", problem)
        found.setdefault(name, []).append(session)
    if not found:
        raise ExperimentError(str(path), "no sessions")
    return [join_sessions(own) for own in found.values()]


def _parse_session(cells: Sequence[str]) -> tuple[float, float] | None:
    """Return the two instants of a session; None if the cells are none."""
    if len(cells) != 2:
        return None
    from_s = parse_number(cells[0])
    to_s = math.inf if cells[1].lower() in _OPEN_ENDS else parse_number(cells[1])
    return (from_s, to_s) if from_s is not None and to_s is not None and from_s < to_s else None


def join_sessions(sessions: Recorded) -> Recorded:
    """Return the sessions in order of time; those that overlap or touch become one."""
    first, *others = sorted(sessions)
    joined = [first]
    for from_s, to_s in others:
        if from_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], to_s))
        else:
            joined.append((from_s, to_s))
    return joined


def read_rows(path: Path, separator: str = ",") -> list[Row]:
    """Return the rows of a file of separated values.

    Raises:
        ExperimentError: the file cannot be read.
    """
    with input_errors():
        return split_rows(path, read_text(path), separator)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, without blank lines and comments.

    Raises:
        ExperimentError: the file cannot be read.
    """
    with input_errors():
        text = read_text(path)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _without_header(rows: list[Row]) -> list[Row]:
    """Return the rows without a first one that has the names of columns."""
    has_header = bool(rows) and all(
        _COLUMN_NAME.fullmatch(cell) and cell.lower() not in _OPEN_ENDS for cell in rows[0].cells
    )
    return rows[int(has_header) :]
