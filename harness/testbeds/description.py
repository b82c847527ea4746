"""The description of a testbed, for code that treats testbeds differently without naming any.

Descriptions are data and import nothing else of the harness but data planes' descriptions, since every room reads them.
They name code as ``module:name``, which ``pkgutil.resolve_name`` finds when it is used.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import Struct, field

from harness.planes.description import Device

Ability = Literal[
    "shape",
    "jitter",
    "rate",
    "queue",
    "mtu",
    "capture",
    "opaque",
    "probe",
    "certify",
    "dilate",
    "vanish",
    "faults",
    "disorder",
    "pause",
    "command",
    "names",
    "record",
    "processes",
    "inventory",
    "simulate",
]
"""What a testbed may be able to do; ``ABILITIES`` has the meanings. The names are in ``manifest.json``, too."""

ABILITIES: dict[Ability, str] = {
    "shape": "delays and drops packets as the underlay asks",
    "jitter": "varies the delay of a pair over time",
    "rate": "limits the rates of access links, and of links of a graph",
    "queue": "drops packets at full queues",
    "mtu": "gives hosts the MTU that the underlay asks for",
    "capture": "captures packets",
    "opaque": "does not say how late each packet was: the captures are judged alone",
    "probe": "measures the round trips between its hosts before, during and after the workload",
    "certify": "records how exactly its network is what was asked for, and the load of its machine, for the verdict",
    "dilate": "runs slower than real time",
    "vanish": "crashes nodes silently",
    "faults": "changes its network as the experiment's faults ask",
    "disorder": "duplicates and reorders packets as the experiment's faults ask",
    "pause": "pauses peers as the experiment's faults ask",
    "command": "runs programs instead of the Python peer",
    "names": "gives each peer a host name that all peers can look up, and the same port",
    "record": "records every event of a peer",
    "processes": "runs peers as processes, in real time",
    "inventory": "places peers on the machines of an inventory",
    "simulate": "runs nodes on virtual time: nothing is late, and the same seed gives the same run",
}
"""Every ability and what a testbed with it does."""

assert tuple(ABILITIES) == get_args(Ability)


class HostLimit(Struct, frozen=True):
    """The most hosts of a run. ``place`` says on or in what there is no room for more, as a phrase."""

    hosts: int
    place: str


class Description(Struct, frozen=True, kw_only=True):
    """What a testbed says of itself.

    Attributes:
        name: the value of the experiment's key ``testbed``.
        text: what it is, as a phrase.
        can: what it does if it is asked.
        cannot: why it does not do the rest; without a reason, users are told which testbeds can.
        place: ``module:name`` of a ``harness.planning.placement.Place``.
        estimate: ``module:name`` of a ``harness.planning.needs.Estimate``.
        stage: ``module:name`` of the running stage: run directory -> manifest.
        testbed: ``module:name`` of a ``base.MakeTestbed``, for stages with machines; None = the stage needs none.
        plane: the name of its data plane in ``harness.planes.registry.PLANES``; None = it has none.
        needs: the kernel's devices; ``trellis doctor`` tries them.
        limit: the most hosts; None = no limit of its own.
        sandboxed: whether the running stage is started in a sandbox, with which its machine ends.
        here: whether this machine runs the peers, so that a run that needs more than it has is refused.
    """

    name: str
    text: str
    can: frozenset[Ability]
    cannot: Mapping[Ability, str] = field(default_factory=dict)
    place: str
    estimate: str
    stage: str = "harness.stages.execution:run_planned"
    testbed: str | None = None
    plane: str | None = None
    needs: tuple[Device, ...] = ()
    limit: HostLimit | None = None
    sandboxed: bool = False
    here: bool = True

    def __post_init__(self) -> None:
        """Refuse a description that contradicts itself.

        Raises:
            ValueError: the testbed says why it lacks what it has.
        """
        if both := self.can & self.cannot.keys():
            raise ValueError(f"testbed {self.name}: {', '.join(sorted(both))} in both can and cannot")
