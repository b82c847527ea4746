"""A run in progress, seen from outside: ``trellis watch RUN`` and ``trellis run --live``.

``snapshot.py`` says what is shown. ``collector.py`` makes it once a second, from the files that the run writes anyway
and from the run's Prometheus, in a process that runs only when no other process wants the processor. ``server.py``
sends it to a page, and ``terminal.py`` prints it.
"""
