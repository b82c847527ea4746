"""The data planes by name. A new plane adds its ``PLANE`` here; nothing else lists names."""

from harness.planes import userspace
from harness.planes.description import Description

PLANES: dict[str, Description] = {plane.name: plane for plane in (userspace.PLANE,)}
