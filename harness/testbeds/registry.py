"""The testbeds by name. A new testbed adds its ``TESTBED`` to ``TESTBEDS``; nothing else lists names."""

from harness.testbeds import emulated, remote, simulated
from harness.testbeds.description import Ability, Description

TESTBEDS: dict[str, Description] = {
    testbed.name: testbed for testbed in (emulated.TESTBED, simulated.TESTBED, remote.TESTBED)
}
"""Every testbed, in the order in which users are told of them."""

DEFAULT = emulated.TESTBED.name
"""The testbed of an experiment that names none."""


def find_lack(testbed: str, ability: Ability) -> str | None:
    """Return why a testbed lacks an ability; None if it has it."""
    description = TESTBEDS[testbed]
    if ability in description.can:
        return None
    able = " or ".join(f'"{other.name}"' for other in TESTBEDS.values() if ability in other.can)
    return description.cannot.get(ability, f"only testbed = {able} uses it")
