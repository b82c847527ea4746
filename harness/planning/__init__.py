"""From an experiment to everything that a run needs to know before it starts."""

from harness.planning.files import encode_plan, read_plan, write_plan
from harness.planning.making import make_plan

__all__ = ["encode_plan", "make_plan", "read_plan", "write_plan"]
