"""The simulator: the same nodes on virtual time, ten thousand of them in one process.

``simulation`` has the driver of all nodes, ``queue`` the pending events, ``hosts`` one node with its timers and
connections, ``network`` what happens to the bytes between two hosts, and ``enactment`` carries out a plan's schedule.
Runs (``harness.stages.simulation``) and studies (``harness.studies.point_run``) drive it. It knows no files.
"""
