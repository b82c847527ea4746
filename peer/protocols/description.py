"""The description of a protocol, for code that treats protocols differently but names none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame
from peer.core.parts import Part
from peer.core.rates import RateLaw

Choice = dict[str, Any]
"""A part in the form of an experiment: its ``name`` and its parameters."""

Interests = Sequence[tuple[TopicId, ...]]
"""The topics of every node, indexed by node."""


class Composition(Struct, frozen=True):
    """The parts that make a protocol.

    ``needs_interests``: whether the bootstrap service tells nodes the interests of others although they keep their own
    private. If the protocol does not need them, it tells none.
    """

    overlay: Choice
    dissemination: Choice = field(default_factory=lambda: {"name": "flood"})
    membership: Choice = field(default_factory=lambda: {"name": "full"})
    interests: str = "announced"
    needs_interests: bool = True


class FirstNetwork(NamedTuple):
    """The network at the start of a run, from which the plan draws initial states.

    Attributes:
        interests: the topics of every node's first instance.
        up: whether each node is up at the start; the first instance of the others joins later.
        seed: the seed of the run. A node's first instance uses it; later ones use other seeds.
        rates: the law of the topics' publication rates; None = all are equal.
        round_trip_ns: returns the round-trip time of a frame and its answer between two nodes (ns), as each of them can
            measure it; None = nodes cannot know it before the run.
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
        key: the parameter that determines it.
        after_s: how long after the first copy (s).
        held_s: how long a copy may wait at nodes before it reaches the last node, besides its time on links (s).
    """

    key: str
    after_s: float
    held_s: float


class Description(Struct, frozen=True, kw_only=True):
    """A protocol.

    Attributes:
        name: its name in experiments. Its own parts have the same name.
        composition: its parts by default. An experiment may change the parameters that it sets.
        parts: its own parts by their role, "overlay" or "dissemination". The other parts of its composition are shared.
            If the dissemination is the class of the overlay or a subclass of it, one part fills both roles.
        parameters: the form of its section of an experiment, which has the parameters of its own parts; None = it has
            no section.
        background_frames: frames that nodes send regularly, whether nodes join or leave or not, such as heartbeats.
            Studies do not count them as caused by churn.
        check: raises a ``ParameterError`` for parameters that do not fit a network of this size.
        draw_initial_state: draws the state that the plan gives the overlay of every node besides the parameters, from
            the network at the start and the parameters; may raise ``ParameterError``. None = there is none.
        needs_rates: whether the overlay of every node gets the topics' relative publication rates: its parameter
            ``rates``, a ``peer.core.rates.RateLaw``, which is absent if all rates are equal.
        also_called: other names of the protocol or of its kind, for hints.
        links_all: whether its overlay links every two nodes by design.
        forgetting: returns when its nodes forget messages, given its parameters; None = not within a run.
        report_note: returns a note for the report of a run, given the protocol's section of the plan.
        false_positive_rate: returns the probability that a node delivers a message although it does not satisfy the
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
    """Return the name of the section of an experiment with the parameters of a part or protocol."""
    return part.replace("-", "_")
