"""Where an experiment is executed: one package per testbed, whose ``__init__`` describes it.

``registry`` has the testbeds by name, and ``description`` what a testbed says of itself. Loader, planner, prediction,
doctor and running stage read the descriptions, so none of them names a testbed. ``base`` has the interfaces between a
testbed with machines and ``harness.stages.execution``.
"""
