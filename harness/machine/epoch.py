"""The offset between this machine's clocks."""

import time

_SAMPLES = 200


def epoch_offset_ns() -> int:
    """Return CLOCK_REALTIME - CLOCK_MONOTONIC: the sample between the two closest readings of the latter."""
    samples = []
    for _ in range(_SAMPLES):
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        samples.append((after - before, now - (before + after) // 2))
    return min(samples)[1]
