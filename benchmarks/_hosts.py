"""Hosts for benchmarks, booted as those of a run are. Inside a sandbox."""

from pathlib import Path

from harness.experiment.form import Experiment
from harness.planning.placement import place_in_sandbox
from harness.testbeds.emulated.mininet_net import RunTopo
from topologies.generated import plain_underlay
from topologies.model import Host, between

DELAY_MS = 50.0


def bench_topo(count: int) -> RunTopo:
    """Return the topology of a run on a matrix with one delay for all pairs. Nothing emulates this delay."""
    hosts = tuple(Host(name=f"host {number}", site="bench") for number in range(count))
    underlay = plain_underlay("bench", hosts, between(count, DELAY_MS))
    return RunTopo(underlay, place_in_sandbox(Experiment("bench"), Path(), count))
