"""Samples of a graph of followers, such as Twitter's: every user is a node, and a topic on which it publishes."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from harness.errors import ExperimentError
from harness.experiment.document import input_errors
from topologies.foreign import name_form
from topologies.reading import Row, parse_number, read_text, split_rows

_FOLLOWERS = ("source", "follower", "from", "src", "user", "fromnodeid")
_FOLLOWEES = ("target", "followee", "to", "dst", "followed", "tonodeid")
"""Names of the columns of an edge list, in lower case."""

_COMMENTS = ("#", "%")


def sample_followers(path: Path, users: int, draws: Random) -> tuple[tuple[int, ...], ...]:
    """Return the topics of every user of a snowball sample.

    Node and topic i are the i-th user of the sample. It subscribes to the users of the sample that it follows, and to
    its own topic, so that it is one of the topic's subscribers when it publishes.

    Args:
        path: the graph, see ``_read_graph``.
        users: number of users in the sample.
        draws: draws the users with which the sample begins.

    Raises:
        ExperimentError: the file cannot be read, has too few users, or nobody in the sample follows anybody.

    Source: Vitis section IV-E.
    """
    followees = _read_graph(path)
    number = {user: index for index, user in enumerate(_snowball(followees, users, draws))}
    if len(number) < users:
        raise ExperimentError(str(path), f"expected a graph of at least {users} users, got {len(number)}")
    topics = tuple(_topics(user, followees, number) for user in number)
    if all(len(own) == 1 for own in topics):
        raise ExperimentError(str(path), f"nobody among {users} users follows another one")
    return topics


def _read_graph(path: Path) -> dict[str, list[str]]:
    """Return the followees of each follower as texts, since a sample needs only some of them split.

    The file has lines ``follower followee followee ...``, separated by spaces or tabs, or is a list of edges
    ``follower,followee``. Lines that begin with ``#`` or ``%`` are comments. Names are any text without separators.

    Raises:
        ExperimentError: the file cannot be read, or is in another form.
    """
    with input_errors():
        text = read_text(path)
    if form := name_form(text):
        raise ExperimentError(str(path), f"this is {form}, expected lines of a follower and its followees")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if _has_users(line)]
    commas = bool(lines) and "," in lines[0][1]
    found: dict[str, list[str]] = {}
    for follower, followees in _edges(path, text) if commas else _adjacencies(path, lines):
        found.setdefault(follower, []).append(followees)
    return found


def _has_users(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(_COMMENTS)


def _edges(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Yield the edges of a CSV file: the columns that its header names, otherwise its only two columns.

    Raises:
        ExperimentError: a row has other columns.
    """
    with input_errors():
        rows = [row for row in split_rows(path, text) if not row.cells[0].startswith(_COMMENTS)]
    width, columns, edges = _read_header(rows) if rows else (2, (0, 1), rows)
    for line, cells in edges:
        users = [cells[column] for column in columns] if len(cells) == width else [""]
        if not all(len(user.split()) == 1 for user in users):
            advice = "more columns need a header such as Source,Target,Weight"
            problem = f"expected {width} columns with users, got {','.join(cells)[:40]!r}; {advice}"
            raise ExperimentError(f"{path}:{line}", problem)
        yield users[0], users[1]


def _read_header(rows: list[Row]) -> tuple[int, tuple[int, int], list[Row]]:
    """Return the number of columns, those of follower and followee, and the rows without a header."""
    header = [cell.lower() for cell in rows[0].cells]
    follower, followee = (_find(header, names) for names in (_FOLLOWERS, _FOLLOWEES))
    if follower is not None and followee is not None:
        return len(header), (follower, followee), rows[1:]
    numbered = len(rows) > 1 and all(cell.isdigit() for row in rows[1:] for cell in row.cells)
    is_header = numbered and not any(cell.isdigit() for cell in header)
    return 2, (0, 1), rows[int(is_header) :]


def _find(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((number for number, name in enumerate(header) if name in names), None)


def _adjacencies(path: Path, lines: list[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Yield the follower of each line, and its followees as one text.

    Raises:
        ExperimentError: a line has commas or semicolons, or the lines end with weights.
    """
    if lines and _names_columns(lines[0][1].lower().split()):
        lines = lines[1:]
    if lines and _have_weights([line.split() for _, line in lines]):
        number, line = lines[0]
        problem = f"weights and times are read only from a CSV file with a header, got {line.strip()[:40]!r}"
        raise ExperimentError(f"{path}:{number}", problem)
    for number, line in lines:
        if "," in line or ";" in line:
            problem = f"expected users separated by spaces, or all lines by commas, got {line.strip()[:40]!r}"
            raise ExperimentError(f"{path}:{number}", problem)
        follower, *followees = line.split(maxsplit=1)
        yield follower, "".join(followees)


def _names_columns(words: list[str]) -> bool:
    return len(words) >= 2 and words[0] in _FOLLOWERS and words[1] in _FOLLOWEES


def _have_weights(lines: list[list[str]]) -> bool:
    """Return whether lines are edges with a weight or a time, which look like followers with two or three followees.

    Weights are fractions, negative, or all the same although somebody would then follow itself; times have nine digits
    or more, and users have fewer.
    """
    if len(lines) < 3 or {len(words) for words in lines} not in ({3}, {4}):
        return False
    users = {user for words in lines for user in words[:2]}
    for column in range(2, len(lines[0])):
        words = {line[column] for line in lines}
        if any(parse_number(word) is None for word in words):
            continue
        odd = any(not word.isdigit() for word in words)
        same = len(words) == 1 and any(line[0] in words for line in lines)
        times = min(map(len, words)) >= 9 > max(map(len, users))
        if odd or same or times:
            return True
    return False


def _snowball(followees: dict[str, list[str]], users: int, draws: Random) -> list[str]:
    """Return the users of the sample: followers drawn at random, each with all its followees, until there are enough.

    The followees of the last one may be too many; the first ones in the file's order are taken.
    """
    starts = list(followees)
    draws.shuffle(starts)
    found: dict[str, None] = {}
    for start in starts:
        if len(found) >= users:
            break
        found |= dict.fromkeys([start, *_split(followees[start])])
    return list(found)[:users]


def _split(texts: list[str]) -> Iterator[str]:
    return (user for text in texts for user in text.split())


def _topics(user: str, followees: dict[str, list[str]], number: dict[str, int]) -> tuple[int, ...]:
    followed = {number[followee] for followee in _split(followees.get(user, [])) if followee in number}
    return tuple(sorted(followed | {number[user]}))
