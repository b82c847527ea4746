"""The description of a data plane, for code that treats planes differently without naming any."""

from typing import Literal

from msgspec import Struct

PlaneAbility = Literal["shape", "queue", "capture", "faults"]
"""What a plane may be able to do: ``harness.testbeds.description.ABILITIES`` has the meanings."""


class Device(Struct, frozen=True):
    """A kind of network device that the kernel must have.

    Attributes:
        name: of the kernel's module.
        command: makes one, in namespaces that end with the command.
        purpose: what it is for, as a phrase.
        mend: what a user does if none can be made.
    """

    name: str
    command: tuple[str, ...]
    purpose: str
    mend: str


class Description(Struct, frozen=True, kw_only=True):
    """What a data plane says of itself.

    Attributes:
        name: of the entry in ``registry.PLANES``.
        can: what it does to packets if it is asked.
        needs: the kernel's devices; ``trellis doctor`` tries them.
        make: ``module:name`` of a ``plane.PlaneMaker``.
    """

    name: str
    can: frozenset[PlaneAbility]
    needs: tuple[Device, ...]
    make: str
