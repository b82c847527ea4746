"""The running stage of a run whose network is not the one that its documents ask for.

    _faulty_stage.py RUN_DIR FAULT SIZE

The fault's name is one of ``_faults.LIVE``. Everything else of the stage is the real one.
"""

import sys
from typing import Any

from msgspec.structs import replace

from benchmarks import _faults
from harness.planes.plane import Change, PairsChange
from harness.planes.registry import PLANES
from harness.planes.userspace.handle import UserspacePlane
from harness.stages import execution
from topologies.network import Network


class WrongPlane(UserspacePlane):
    """A data plane that was given another network than the one asked for, or that has a defect."""

    def __init__(self, network: Network, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the plane's
        fault, size = _faults.LIVE[sys.argv[2]], float(sys.argv[3])
        self._wrong = fault.change(size)
        super().__init__(self._wrong(network), *arguments, defect=fault.plane(size), **options)

    def apply(self, change: Change) -> None:
        """Change the network, and be wrong again."""
        if isinstance(change, PairsChange):
            change = PairsChange(self._wrong(change.network))
        super().apply(change)


if __name__ == "__main__":
    PLANES["userspace"] = replace(PLANES["userspace"], make=f"{__name__}:WrongPlane")
    sys.exit(execution.main())
