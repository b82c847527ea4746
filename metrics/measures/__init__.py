"""Every measure once: its name, unit, meaning and formula.

A ``Family`` holds the measures of the same facts. A run's tables (``metrics.headline``, ``metrics.tables``) and a
simulation in memory (``harness.studies``) fill in the same facts, so that both get the same numbers. Reports, studies
and documents take names, units and meanings from ``metrics.measures.registry``.
"""
