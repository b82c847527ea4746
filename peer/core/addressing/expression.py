"""The expression language: which attributes the receivers of a message must have.

    expression := factor ("&" factor | "|" factor)*
    factor     := attribute | "(" expression ")"
    attribute  := [a-zA-Z]+

Spaces separate tokens and mean nothing else. ``&`` binds tighter than ``|``. Case matters. Length, depth of parentheses
and number of disjunctive terms are bounded, since expressions come from other peers.
"""

import re
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

MAX_LENGTH = 1024
"""Most characters of an expression."""

MAX_DEPTH = 32
"""Most parentheses that are open at once."""

MAX_TERMS = 64
"""Most terms of the disjunctive form of an expression, and of each of its parts."""

Term = frozenset[str]
"""A conjunction: the attributes that a receiver must have."""

_TOKEN = re.compile(r"[a-zA-Z]+|[&|()]")


class ExpressionError(ValueError):
    """An expression is refused. It has the reason and the position (0 for the first character) of the fault."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at position {position}")
        self.reason = reason
        self.position = position


@dataclass(frozen=True, slots=True)
class Attribute:
    """A receiver must have this attribute."""

    name: str
    position: int = field(default=0, compare=False)

    def matches(self, attributes: Set[str]) -> bool:
        return self.name in attributes

    def terms(self) -> frozenset[Term]:
        return frozenset({frozenset({self.name})})


@dataclass(frozen=True, slots=True)
class And:
    """All operands must match."""

    operands: "tuple[Expression, ...]"
    position: int = field(default=0, compare=False)

    def matches(self, attributes: Set[str]) -> bool:
        return all(operand.matches(attributes) for operand in self.operands)

    def terms(self) -> frozenset[Term]:
        product = frozenset({Term()})
        for operand in self.operands:
            factor = operand.terms()
            product = _minimal({one | other for one in product for other in factor}, self.position)
        return product


@dataclass(frozen=True, slots=True)
class Or:
    """At least one operand must match."""

    operands: "tuple[Expression, ...]"
    position: int = field(default=0, compare=False)

    def matches(self, attributes: Set[str]) -> bool:
        return any(operand.matches(attributes) for operand in self.operands)

    def terms(self) -> frozenset[Term]:
        return _minimal({term for operand in self.operands for term in operand.terms()}, self.position)


Expression = Attribute | And | Or
"""``matches`` evaluates it for a set of attributes.

``terms`` rewrites it as a disjunction of conjunctions, and leaves out conjunctions that imply another one. It raises
``ExpressionError`` if more than ``MAX_TERMS`` remain, in it or in a part. Positions in the text serve error messages.
"""


def parse(text: str) -> Expression:
    """Read an expression.

    Raises:
        ExpressionError: if the text does not follow the grammar, or exceeds a bound.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"more than {MAX_LENGTH} characters", MAX_LENGTH)
    return _Parser(text).whole()


class _Parser:
    """A recursive descent parser with one method per rule. ``MAX_DEPTH`` bounds the depth of the recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[int] = []
        self._token = ""
        self._advance(0)

    def whole(self) -> Expression:
        expression = self._disjunction()
        if self._token:
            raise ExpressionError(f"expected an operator instead of {self._token!r}", self._at)
        return expression

    def _advance(self, start: int) -> None:
        while self._text[start : start + 1] == " ":
            start += 1
        found = _TOKEN.match(self._text, start)
        if found is None and start < len(self._text):
            raise ExpressionError(f"unexpected character {self._text[start]!a}", start)
        self._at, self._token = start, found[0] if found else ""

    def _take(self) -> None:
        self._advance(self._at + len(self._token))

    def _disjunction(self) -> Expression:
        return self._chain("|", self._conjunction, Or)

    def _conjunction(self) -> Expression:
        return self._chain("&", self._factor, And)

    def _chain(self, operator: str, operand: Callable[[], Expression], kind: type[And] | type[Or]) -> Expression:
        position, operands = self._at, [operand()]
        while self._token == operator:
            self._take()
            operands.append(operand())
        return operands[0] if len(operands) == 1 else kind(tuple(operands), position)

    def _factor(self) -> Expression:
        position, token = self._at, self._token
        if token == "(":
            if len(self._open) == MAX_DEPTH:
                raise ExpressionError(f"more than {MAX_DEPTH} open parentheses", position)
            self._open.append(position)
            self._take()
            inside = self._disjunction()
            if self._token != ")":
                what = f"instead of {self._token!r}" if self._token else "at the end"
                raise ExpressionError(f"expected ')' for the '(' of position {self._open[-1]} {what}", self._at)
            self._open.pop()
            self._take()
            return inside
        if not token or not token.isalpha():
            what = f"instead of {token!r}" if token else "at the end"
            raise ExpressionError(f"expected an attribute or '(' {what}", position)
        self._take()
        return Attribute(token, position)


def _minimal(terms: Iterable[Term], position: int) -> frozenset[Term]:
    """Return the terms that imply no other one. The work is bounded: each is compared with at most ``MAX_TERMS``."""
    kept: list[Term] = []
    for term in sorted(terms, key=len):
        if not any(other <= term for other in kept):
            kept.append(term)
            if len(kept) > MAX_TERMS:
                raise ExpressionError(f"more than {MAX_TERMS} disjunctive terms in the part that begins", position)
    return frozenset(kept)
