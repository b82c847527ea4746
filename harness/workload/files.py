"""Reads the files of a workload: interests, and sessions."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from harness.errors import ExperimentError

Recorded = list[tuple[float, float]]
"""A node's sessions in a trace, in order of time: from when to when it was up (s)."""

Number = Annotated[int, Meta(ge=0)]


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
    for number, node, topic in _pairs(path):
        problem = ""
        if node >= nodes:
            problem = f"expected a node from 0 to {nodes - 1}, got {node}"
        elif topic >= topics:
            problem = f"expected a topic from 0 to {topics - 1}, got {topic}"
        elif topic in found[node]:
            problem = f"node {node} subscribes to topic {topic} twice"
        if problem:
            raise ExperimentError(f"{path}:{number}", problem)
        found[node].add(topic)
    return tuple(tuple(sorted(chosen)) for chosen in found)


def _pairs(path: Path) -> Iterator[tuple[int, int, int]]:
    """Yield (line number, node, topic) of every pair in the file."""
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


def read_sessions(path: Path) -> list[Recorded]:
    """Return the sessions of each of a file's nodes, in the order of their first lines.

    The file is CSV (may be .gz) with the columns node, from_s, to_s, and may have a header.

    Raises:
        ExperimentError: the file is invalid; the place is the file and the line.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for number, line in read_lines(path):
        words = [word.strip() for word in line.split(",")]
        if number == 1 and words[0].lower() == "node":
            continue
        try:
            name, (from_s, to_s) = words[0], map(float, words[1:])
        except ValueError:
            from_s, to_s = 1.0, 0.0
        if not from_s < to_s:
            raise ExperimentError(f"{path}:{number}", f"expected node,from_s,to_s with from < to, got {line[:40]!r}")
        found.setdefault(name, []).append((from_s, to_s))
    return [join_sessions(own) for own in found.values()]


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


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines with their numbers; a .gz file is unpacked.

    Raises:
        ExperimentError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except UnicodeDecodeError as error:
        raise ExperimentError(str(path), f"not UTF-8 text at byte {error.start}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ExperimentError(str(path), f"not a gzip file: {error}") from None
    except OSError as error:
        raise ExperimentError(str(path), error.strerror or "cannot be read") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line
