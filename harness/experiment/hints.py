"""Hints for keys and values that a file spells in its own way: by meaning first, then by spelling.

``MEANINGS`` has the words that mean the same in experiments. It names no key: a hint is made from the words of the keys
and values that the form has, so a renamed key needs no change here. A test finds groups of which the form uses no word.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from peer.protocols.registry import PROTOCOLS

MEANINGS = (
    *(frozenset((protocol.name, *protocol.also_called)) for protocol in PROTOCOLS.values() if protocol.also_called),
    *(
        frozenset(group.split())
        for group in (
            "delay latency lag rtt ping",
            "loss lost drop dropper plr",
            "rate bandwidth throughput capacity speed bitrate frequency per",
            "up upload uplink",
            "down download downlink",
            "jitter variation deviation variance",
            "queue buffer backlog",
            "host node peer participant client",
            "topic channel subject room",
            "underlay network topology wan net",
            "workload traffic load",
            "publish publication message send event",
            "payload message body",
            "byte size",
            "duration length runtime time",
            "interval period gap",
            "warmup warm rampup startup",
            "cooldown drain grace",
            "refresh update",
            "interest subscription subscribe subscriber",
            "churn failure fault departure",
            "adversary attack attacker byzantine sybil",
            "partition split divide",
            "isolate quarantine",
            "degrade worsen impair",
            "flap flicker",
            "pause suspend freeze sigstop stall",
            "group set",
            "crash die kill fail failure",
            "vanish silence blackhole disappear",
            "leave depart quit",
            "join arrive enter",
            "membership discovery bootstrap directory",
            "dissemination routing spreading",
            "degree d fanout neighbour neighbor connection link",
            "ttl hop",
            "view cache",
            "processing cpu compute",
            "capture pcap tcpdump",
            "prometheus scrape monitoring",
            "command program executable binary",
            "path file filename csv",
            "kind type mode model",
            "matrix csv table file",
            "world city geo geographic map",
            "uniform constant same equal fixed flat",
            "square plane euclidean",
            "wondernetwork measured real",
            "simulated simulator simulation sim",
            "emulated emulator emulation mininet netem",
            "remote ssh cloud cluster",
            "exponential poisson memoryless",
            "session trace",
            "zipf popularity power skew",
            "exponent alpha skew",
            "follower twitter",
            "complete clique full",
            "flood flooding epidemic broadcast",
            "random flood flooding broadcast",
            "pull lazy",
        )
    ),
)
"""Words that mean the same, in singular and lower case; a word may be in several groups."""

ABSENT = {
    "reordering": "only faults reorder packets: reorder_ratio of degrade",
    "duplication": "only faults duplicate packets: duplicate_ratio of degrade",
    "corruption": "the network corrupts no packets",
    "corrupt": "the network corrupts no packets",
}
"""Words for what no key does, and the reason to give."""

_FILLERS = frozenset(
    re.findall(
        r"\w+",
        "ms s us ns sec second minute mbit kbit gbit mbps kbps bit ratio percent pct "
        "number num count of the n total default",
    )
)
"""Units and words that do not tell keys apart."""

_WORD = re.compile(r"[A-Z]?[a-z]+[0-9]*[a-z]+|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")

_CLOSE = 0.6
"""The least agreement of two names, from 0 to 1, at which one is taken to mean the other."""


def suggest(name: str, known: Sequence[str]) -> list[str]:
    """Return the known names that mean the name, at most three, or else the one that is spelled most like it."""
    return same_meaning(name, known)[:3] or get_close_matches(name.lower(), known, n=1, cutoff=0.7)


def same_meaning(name: str, known: Sequence[str]) -> list[str]:
    """Return the known names that mean the name, in their order; of dotted names the last part counts."""
    scores = {other: _agreement(words_of(name), words_of(other.rpartition(".")[2])) for other in known}
    best = max(scores.values(), default=0.0)
    return [other for other in known if scores[other] == best >= _CLOSE]


def absence(name: str) -> str | None:
    """Return why no key does what the name says; None if nothing is known about it."""
    return next((ABSENT[word] for word in words_of(name) if word in ABSENT), None)


def words_of(name: str) -> list[str]:
    """Return the words of a name in singular, without units unless it has nothing else."""
    words = [_singular(word.lower()) for word in _WORD.findall(name[:100])]
    return [word for word in words if word not in _FILLERS] or words


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us")) else word


def _agreement(asked: list[str], known: list[str]) -> float:
    """Return the harmonic mean of the shares of both names' words that have a counterpart in the other."""
    if not asked or not known:
        return 0.0
    matched = sum(any(_same(word, other) for other in known) for word in asked) / len(asked)
    covered = sum(any(_same(word, other) for word in asked) for other in known) / len(known)
    return 2 * matched * covered / (matched + covered) if matched and covered else 0.0


def _same(word: str, other: str) -> bool:
    return word == other or any(word in group and other in group for group in MEANINGS)
