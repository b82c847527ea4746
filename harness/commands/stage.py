"""Performs the running stage of a plan that another machine has made (``trellis run --on``); no verb of its own.

    python -m harness.commands.stage RUN_DIR

Standard input is the lifeline: at its end, the stage is ended as by Ctrl-C.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from harness.commands.run import perform_stage
from harness.errors import TrellisError
from harness.interruption import describe, exit_code, heed_sigterm
from harness.planning import read_plan
from harness.planning.planes import refuse_lacking_kernel
from harness.planning.prediction import refuse_oversized
from metrics.rundir import RunDirError


def main() -> int:
    """Refuse a run that this machine cannot carry, and perform the others; return the exit status."""
    run_dir = Path(sys.argv[1])
    heed_sigterm()
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        plan = read_plan(run_dir).plan
        refuse_oversized(plan.experiment, len(plan.placement))
        refuse_lacking_kernel(plan.experiment)
        return perform_stage(plan.experiment.testbed, run_dir)
    except (TrellisError, RunDirError) as error:
        print(f"trellis run: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        print(f"trellis run: {describe(interrupt)}", file=sys.stderr)
        return exit_code(interrupt)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
