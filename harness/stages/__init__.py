"""The two stages of a run. The first goes from a plan to ``manifest.json``, the second from there to ``summary.json``.

``execution`` is the first stage on machines, ``simulation`` the same in the simulator, and ``analysis`` the second
stage. ``supervision``, ``manifest`` and ``prometheus`` serve the first one; ``repetition`` decides whether a run is
made again. ``harness.commands`` starts each stage in a process of its own.
"""
