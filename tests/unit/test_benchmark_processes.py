"""What the benchmarks measure of processes."""

import os
import sys

from benchmarks._processes import measure

FORKING = """
import os, sys, time
child = os.fork()
if not child:
    held = bytearray(60_000_000)
    time.sleep(1)
    os._exit(0)
time.sleep(2)  # the child has ended by now, and is a zombie
os.waitpid(child, 0)
"""


def test_the_memory_of_a_process_counts_after_it_has_ended() -> None:
    """As the workers of Spark do before their daemon looks after them: they have no command any more."""
    used = measure([sys.executable, "-c", FORKING, "some-word"], dict(os.environ))
    assert used.largest_mb("some-word") > 60
    assert used.peak_together_mb > 60
