"""Studies: a grid of simulated experiments over several seeds, and the tables and figures that come of it.

``form`` and ``loader`` are the study file, ``points`` its grid, ``store`` the files of a sweep, ``executor`` runs jobs
here or on Spark, and ``sweep`` carries out the whole. ``point_run`` is one simulation, seen by ``observer``,
``snapshots`` and ``measurement``; ``results``, ``tables``, ``figures``, ``claims`` and ``page`` show what came of it.
``results_file`` is the file of results that can be committed, and ``documents`` shows it in ``docs``.
"""
