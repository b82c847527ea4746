"""Makes processes run only when no other process wants their processor.

SCHED_IDLE alone is not enough: in a kernel with autogroups a policy applies among the processes of one session, and
sessions share a processor evenly. Beside a busy SCHED_IDLE process of another session a process lost a third of its
time (docs/adr/0014). So the session must be nice, too.

Source: sched(7), "The autogroup feature".
"""

import time
import warnings
from pathlib import Path

PLANE_PRIORITY = 10
"""The data plane's, under SCHED_FIFO."""

WATCHDOG_PRIORITY = PLANE_PRIORITY + 1
"""Above everything that the testbed runs, below whatever else could keep the data plane from its processor."""

PAUSER_PRIORITY = PLANE_PRIORITY - 1
"""That of the process which pauses peers: above all peers, and it must not delay frames."""

_NICEST = "19"
_ATTEMPTS, _PAUSE_S = 20, 0.15
"""The kernel accepts one change per 0.1 s from unprivileged users."""


def make_session_nice(pid: int) -> None:
    """Give the session of a process the lowest priority. Do nothing in a kernel without autogroups.

    Warn if the kernel refuses. The verdict then judges the run with what the process takes from others.
    """
    path = Path(f"/proc/{pid}/autogroup")
    refusal: OSError | None = None
    for _ in range(_ATTEMPTS):
        try:
            path.write_text(_NICEST, encoding="utf-8")
        except BlockingIOError as error:
            refusal = error
            time.sleep(_PAUSE_S)
        except (FileNotFoundError, ProcessLookupError):  # the process may have ended meanwhile
            return
        except OSError as error:
            refusal = error
            break
        else:
            return
    warnings.warn(f"the session of process {pid} could not be made nice: {refusal}", stacklevel=2)
