"""Keywords of topics: the attributes by which expressions name topics, and the nodes that satisfy an expression."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from peer.core.addressing.expression import Attribute, Expression, ExpressionError, parse
from peer.core.bitset import Bitset
from peer.core.identifiers import TopicId

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def keyword(topic: TopicId) -> str:
    """Return the keyword of a topic: its number in letters, like the columns of a spreadsheet (0 is a, 26 is aa)."""
    letters = ""
    left = topic + 1
    while left:
        left, digit = divmod(left - 1, len(_LETTERS))
        letters = _LETTERS[digit] + letters
    return letters


def keywords(topics: Iterable[TopicId]) -> frozenset[str]:
    """Return the keywords of topics: the attributes of a node that subscribes to them."""
    return frozenset(map(keyword, topics))


def topic_of(word: str) -> TopicId:
    """Return the topic of a keyword.

    Raises:
        ValueError: if the text is empty, or has other characters than lower-case letters.
    """
    if not word or not set(word) <= set(_LETTERS):
        raise ValueError(f"{word!r} is not a keyword, which has only lower-case letters")
    topic = 0
    for letter in word:
        topic = topic * len(_LETTERS) + _LETTERS.index(letter) + 1
    return topic - 1


def check_keywords(text: str, topics: int) -> None:
    """Raise an exception if an attribute of an expression is not the keyword of a topic.

    Args:
        text: the expression.
        topics: the number of topics.

    Raises:
        ExpressionError: the text is not an expression, or an attribute of it is not the keyword of a topic.
    """
    waiting: list[Expression] = [parse(text)]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Attribute):
            waiting += reversed(part.operands)
        elif not part.name.islower() or topic_of(part.name) >= topics:
            last = keyword(topics - 1)
            raise ExpressionError(f"{part.name!r} is not one of the keywords a to {last}", part.position)


@lru_cache(maxsize=1 << 14)
def terms_of_topics(text: str) -> tuple[frozenset[TopicId], ...]:
    """Return the terms of an expression as sets of topics. Nodes that subscribe to all topics of a term satisfy it.

    These sets determine which nodes a message with an expression is for. Terms that imply another one are left out.

    Raises:
        ExpressionError: the text is not an expression, or has too many terms.
        ValueError: an attribute is not a keyword.
    """
    return tuple(sorted((frozenset(map(topic_of, term)) for term in parse(text).terms()), key=sorted))


def covering_topics(text: str) -> tuple[TopicId, ...]:
    """Return the highest topic of each term of an expression, in rising order.

    Each node that satisfies the expression subscribes to one of them. If topics are numbered by popularity, they are
    the topics of each term with the fewest subscribers.
    """
    return tuple(sorted({max(term) for term in terms_of_topics(text)}))


def find_members(text: str, subscribers: Mapping[TopicId, Bitset]) -> Bitset:
    """Return the nodes that satisfy an expression.

    Args:
        text: the expression.
        subscribers: the nodes that subscribe to each topic; a topic without any may be absent.
    """
    found = 0
    for term in terms_of_topics(text):
        first, *others = (subscribers.get(topic, 0) for topic in sorted(term, reverse=True))
        for other in others:
            first &= other
        found |= first
    return found
