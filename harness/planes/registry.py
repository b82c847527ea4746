"""The data planes by name. A new plane adds its ``PLANE`` here; nothing else lists names."""

from harness.planes import kernel, userspace
from harness.planes.description import Description

PLANES: dict[str, Description] = {plane.name: plane for plane in (userspace.PLANE, kernel.PLANE)}

DEFAULT = userspace.PLANE.name
"""The data plane of an experiment that names none."""

AUTO = "auto"
"""The value of the experiment's key ``plane`` with which the plan chooses one."""
