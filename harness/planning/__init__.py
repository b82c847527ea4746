"""Makes the plan of a run from an experiment."""

from harness.planning.documents import encode_plan, read_plan, write_plan
from harness.planning.planner import make_plan
from harness.planning.remarks import remarks_on

__all__ = ["encode_plan", "make_plan", "read_plan", "remarks_on", "write_plan"]
