"""Studies: a grid of simulated experiments over several seeds, and the tables and figures that come of it.

``form`` and ``loader`` are the study file, ``points`` its grid, ``store`` the files of a sweep, ``code_hash`` says
which code their results depend on, ``executor`` runs jobs here or on Spark, and ``sweep`` carries out the whole.
``point_run`` is one simulation, seen by ``observer``, ``snapshots`` and ``measurement``; ``results``, ``tables``,
``figures``, ``claims`` and ``page`` show what came of it. ``record`` is the file with all numbers of a sweep (``kept``
says what is in it, ``origin`` where it comes from).
"""
