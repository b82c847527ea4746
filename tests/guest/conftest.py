"""These tests run inside the guest that ``tests.guest_machine`` boots, whose kernel has netem; nowhere else."""

import os

collect_ignore_glob = [] if "TRELLIS_GUEST" in os.environ else ["test_*.py"]
