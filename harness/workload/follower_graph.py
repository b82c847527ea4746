"""Samples of a graph of followers, such as Twitter's: every user is a node, and a topic on which it publishes."""

from pathlib import Path
from random import Random

from harness.errors import ExperimentError
from harness.workload.files import read_lines


def sample_followers(path: Path, users: int, draws: Random) -> tuple[tuple[int, ...], ...]:
    """Return the topics of every user of a snowball sample.

    Node and topic i are the i-th user of the sample. It subscribes to the users of the sample that it follows, and to
    its own topic, so that it is one of the topic's subscribers when it publishes.

    Args:
        path: lines ``follower followee followee ...``, may be gzipped. Names are any text without spaces.
        users: number of users in the sample.
        draws: draws the users with which the sample begins.

    Raises:
        ExperimentError: the file cannot be read, or has too few users.

    Source: Vitis section IV-E.
    """
    followees = _read_graph(path)
    number = {user: index for index, user in enumerate(_snowball(followees, users, draws))}
    if len(number) < users:
        raise ExperimentError(str(path), f"expected a graph of at least {users} users, got {len(number)}")
    return tuple(_topics(user, followees, number) for user in number)


def _read_graph(path: Path) -> dict[str, str]:
    """Return the followees of each follower as one text, since a sample needs only some of them split."""
    found: dict[str, str] = {}
    for _, line in read_lines(path):
        follower, *followees = line.split(maxsplit=1)
        found[follower] = " ".join([*found.get(follower, "").split(), *followees])
    return found


def _snowball(followees: dict[str, str], users: int, draws: Random) -> list[str]:
    """Return the users of the sample: followers drawn at random, each with all its followees, until there are enough.

    The followees of the last one may be too many; the first ones in the file's order are taken.
    """
    starts = list(followees)
    draws.shuffle(starts)
    found: dict[str, None] = {}
    for start in starts:
        if len(found) >= users:
            break
        found |= dict.fromkeys([start, *followees[start].split()])
    return list(found)[:users]


def _topics(user: str, followees: dict[str, str], number: dict[str, int]) -> tuple[int, ...]:
    followed = {number[followee] for followee in followees.get(user, "").split() if followee in number}
    return tuple(sorted(followed | {number[user]}))
