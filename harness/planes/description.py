"""The description of a data plane, for code that treats planes differently without naming any."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

PlaneAbility = Literal["shape", "jitter", "rate", "queue", "mtu", "capture", "faults", "disorder", "opaque"]
"""What a plane may be able to do: ``harness.testbeds.description.ABILITIES`` has the meanings."""


class Device(Struct, frozen=True):
    """A kind of network device that the kernel must have.

    Attributes:
        name: of the kernel's module.
        command: makes one, in namespaces that end with the command.
        purpose: what it is for, as a phrase.
        mend: how a user fixes it if no device can be made.
    """

    name: str
    command: tuple[str, ...]
    purpose: str
    mend: str


class Description(Struct, frozen=True, kw_only=True):
    """What a data plane says of itself.

    Attributes:
        name: of the entry in ``registry.PLANES``, and the value of the experiment's key ``plane``.
        can: what it does to packets if it is asked.
        cannot: why it does not do the rest.
        needs: the kernel's devices; ``trellis doctor`` tries them.
        make: ``module:name`` of a ``plane.PlaneMaker``.
        most_hosts: the most hosts that it connects; None = no limit of its own.
    """

    name: str
    can: frozenset[PlaneAbility]
    cannot: Mapping[PlaneAbility, str] = field(default_factory=dict)
    needs: tuple[Device, ...]
    make: str
    most_hosts: int | None = None
