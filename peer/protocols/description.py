"""The description of a protocol, for code that treats protocols differently without naming any."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame
from peer.core.parts import Part
from peer.core.rates import RateLaw

Choice = dict[str, Any]
"""A part as an experiment names it: ``name`` and the part's own parameters."""

Interests = Sequence[tuple[TopicId, ...]]
"""Every node's topics, index = node."""


class Composition(Struct, frozen=True):
    """The parts that make a protocol.

    ``needs_interests``: whether its nodes are told what others subscribe to, although they keep their own interests
    private; a protocol that works without is told nothing.
    """

    overlay: Choice
    dissemination: Choice = field(default_factory=lambda: {"name": "flood"})
    membership: Choice = field(default_factory=lambda: {"name": "full"})
    interests: str = "announced"
    needs_interests: bool = True


class FirstNetwork(NamedTuple):
    """The network at the start of a run, from which initial state is drawn.

    Attributes:
        interests: the topics of every node's first instance.
        up: whether each node is up at the start; the first instance of the others joins later.
        seed: the run's. A node's first instance draws from it, later ones from other seeds.
        rates: the law of the topics' publication rates; None = all are equal.
        round_trip_ns: how long a frame and its answer are under way between two nodes, as each can measure it; None =
            nodes cannot know it before the run.
    """

    interests: Interests
    up: Sequence[bool]
    seed: int
    rates: RateLaw | None = None
    round_trip_ns: Callable[[NodeId, NodeId], int] | None = None


class ParameterError(ValueError):
    """A parameter of a protocol does not fit the run. ``key``: its name in the protocol's section of the experiment."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class Forgetting(NamedTuple):
    """When a node forgets a message, so that a later copy counts as a new one.

    Attributes:
        key: the parameter that says it.
        after_s: how long after the first copy.
        held_s: how long a copy may wait at nodes, besides its time on links, before it reaches the last node.
    """

    key: str
    after_s: float
    held_s: float


class Description(Struct, frozen=True, kw_only=True):
    """A protocol.

    Attributes:
        name: what experiments call it. Its own parts have the same name.
        composition: its parts by default. What it sets of a part holds where an experiment sets nothing else.
        parts: its own parts by their role, "overlay" or "dissemination". The others of its composition are shared ones.
            A dissemination that is the overlay, or a subclass of it, fills both roles with one part.
        parameters: the form of its section of an experiment, with which its own parts are made; None = it has none.
        background_frames: frames that nodes send on their own clock, whoever joins or leaves, such as heartbeats.
            Studies do not count them as caused by churn.
        check: refuses parameters for a network of this size, by a ``ParameterError``.
        draw_initial_state: what the plan gives the overlay of every node besides the parameters, drawn from the
            network at the start and the parameters; may raise ``ParameterError``. None = nothing.
        needs_rates: whether the overlay of every node is told the topics' relative publication rates: its parameter
            ``rates``, a ``peer.core.rates.RateLaw``, or nothing if all rates are equal.
        also_called: words that people use for it or for what it is like, for hints.
        links_all: whether its overlay links every two nodes by design.
        forgetting: when its nodes forget messages, given its parameters; None = not within a run.
        report_note: what a report says of a run, given the protocol's section of its plan.
        false_positive_rate: the probability that a node takes a message for its own although it does not satisfy the
            message's expression, given the protocol's section of a plan, the number of the node's topics, and for each
            term of the expression how many of its keywords the node lacks. None = the protocol predicts nothing.
    """

    name: str
    composition: Composition
    parts: Mapping[str, type[Part]]
    parameters: type[Struct] | None = None
    background_frames: tuple[type[Frame], ...] = ()
    check: Callable[[Any, int], None] | None = None
    draw_initial_state: Callable[[FirstNetwork, Any], list[Choice]] | None = None
    needs_rates: bool = False
    also_called: tuple[str, ...] = ()
    links_all: bool = False
    forgetting: Callable[[Any], Forgetting] | None = None
    report_note: Callable[[Mapping[str, Any]], str] | None = None
    false_positive_rate: Callable[[Mapping[str, Any], int, tuple[int, ...]], float] | None = None

    @property
    def section(self) -> str:
        return section_name(self.name)


def section_name(part: str) -> str:
    """The section of an experiment that has the parameters of a part or protocol."""
    return part.replace("-", "_")
