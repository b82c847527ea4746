"""Algorithms over an overlay at an instant, as plain arrays: NumPy and igraph, no Spark and no file.

A ``Snapshot`` holds the arrays. The analysis fills it from a run's tables, studies from a simulation in memory.
``metrics.measures`` defines the measures that these algorithms compute.
"""
