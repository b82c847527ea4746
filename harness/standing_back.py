"""Processes that are to run only when nobody else wants their processor.

SCHED_IDLE alone does not do it: where the kernel has autogroups, a policy counts among the processes of one session,
and sessions share a processor evenly. Beside a busy SCHED_IDLE process of another session a process lost a third of its
time (docs/adr/0015). So the session as a whole has to be nice, too.

Source: sched(7), "The autogroup feature".
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

PLANE_PRIORITY = 10
"""The data plane's, under SCHED_FIFO."""

WATCHDOG_PRIORITY = PLANE_PRIORITY + 1
"""Above everything that the testbed runs, below whatever else could keep the data plane from its processor."""

_NICEST = "19"
_ATTEMPTS, _PAUSE_S = 20, 0.15
"""Of users without privileges the kernel takes one change in a tenth of a second."""


def make_session_nice(pid: int) -> None:
    """Give the session of a process the smallest share of its processors; nothing where there are no autogroups.

    Warns where the kernel refuses: what the process takes from others is then judged with the run.
    """
    path = Path(f"/proc/{pid}/autogroup")
    refusal: OSError | None = None
    for _ in range(_ATTEMPTS):
        try:
            path.write_text(_NICEST, encoding="utf-8")
        except BlockingIOError as error:
            refusal = error
            time.sleep(_PAUSE_S)
        except FileNotFoundError:
            return
        except OSError as error:
            refusal = error
            break
        else:
            return
    warnings.warn(f"process {pid} does not stand back for other sessions: {refusal}", stacklevel=2)
