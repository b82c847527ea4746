"""The testbeds by name. A new testbed adds its ``TESTBED`` to ``TESTBEDS``; nothing else lists names."""

from msgspec.structs import replace

from harness.planes.registry import AUTO, PLANES
from harness.planes.registry import DEFAULT as DEFAULT_PLANE
from harness.testbeds import emulated, remote, simulated
from harness.testbeds.description import Ability, Description, HostLimit

TESTBEDS: dict[str, Description] = {
    testbed.name: testbed for testbed in (emulated.TESTBED, simulated.TESTBED, remote.TESTBED)
}
"""Every testbed, in the order in which users are told of them."""

DEFAULT = emulated.TESTBED.name
"""The testbed of an experiment that names none."""


def find_testbed(testbed: str, plane: str = AUTO) -> Description:
    """Return the description of a testbed with a data plane, whose abilities and needs replace those of its own plane.

    Args:
        testbed: its name.
        plane: the experiment's. A testbed with another plane than the default one, or with none, keeps it.
    """
    description = TESTBEDS[testbed]
    if description.plane != DEFAULT_PLANE or plane in (AUTO, DEFAULT_PLANE):
        return description
    own, other = PLANES[DEFAULT_PLANE], PLANES[plane]
    return replace(
        description,
        can=(description.can - own.can) | other.can,
        cannot={**description.cannot, **other.cannot},
        plane=other.name,
        needs=(*(device for device in description.needs if device not in own.needs), *other.needs),
        limit=HostLimit(other.most_hosts, f'with plane = "{plane}"') if other.most_hosts else description.limit,
    )


def find_lack(testbed: str, ability: Ability, plane: str = AUTO) -> str | None:
    """Return why a testbed with a data plane lacks an ability; None if it has it."""
    description = find_testbed(testbed, plane)
    if ability in description.can:
        return None
    for key, registry in (("testbed", TESTBEDS), ("plane", PLANES)):
        if able := [f'"{other.name}"' for other in registry.values() if ability in other.can]:
            return description.cannot.get(ability, f"only {key} = {' or '.join(able)} uses it")
    return description.cannot.get(ability, "no testbed uses it")
