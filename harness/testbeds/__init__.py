"""Where an experiment is executed on machines: ``emulated`` (one machine, an emulated network) and ``remote``.

``base`` has the interface ``Testbed``, which is all that ``harness.stages.execution`` knows of them. A simulated run
needs no testbed (``harness.simulator``).
"""
