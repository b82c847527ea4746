"""What each testbed can do with the keys of an experiment: one table.

A key that is set for a testbed without the ability is refused if the run would not be what was asked, and remarked on
if only less is observed or judged. A key counts as set if its value is not the default.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from harness.experiment.form import Experiment

TestbedName = Literal["emulated", "simulated", "remote"]


class Ability(Struct, frozen=True):
    """Keys that some testbeds can honour.

    Attributes:
        keys: dotted, of the experiment.
        testbeds: those that honour them.
        why: what the others do, by testbed.
        refused: those of the others that refuse the keys; the rest ignores them.
    """

    keys: tuple[str, ...]
    testbeds: frozenset[TestbedName]
    why: dict[TestbedName, str]
    refused: frozenset[TestbedName] = frozenset()


_REMOTE_NETWORK = 'a run with testbed = "remote" changes nothing in a real network'
_VIRTUAL_TIME = "it runs on virtual time, in one process"
_NO_PLANE = "there is no data plane"

ABILITIES: tuple[Ability, ...] = (
    Ability(
        ("inventory",),
        frozenset({"remote"}),
        dict.fromkeys(("emulated", "simulated"), 'only testbed = "remote" uses it'),
        frozenset({"emulated", "simulated"}),
    ),
    Ability(
        ("time_dilation",),
        frozenset({"emulated", "simulated"}),  # virtual time is the same at any dilation
        {"remote": 'expected 1 with testbed = "remote": a real network cannot be slowed down'},
        frozenset({"remote"}),
    ),
    Ability(
        ("peer.command",),
        frozenset({"emulated", "remote"}),
        {"simulated": 'testbed = "simulated" runs Python nodes in one process and starts no program'},
        frozenset({"simulated"}),
    ),
    Ability(
        ("peer.record",),
        frozenset({"emulated", "remote"}),
        {"simulated": 'testbed = "simulated" records no events: the same seed simulates the same run again'},
        frozenset({"simulated"}),
    ),
    Ability(
        ("underlay.loss_ratio", "underlay.rate_mbit"),
        frozenset({"emulated", "simulated"}),
        {"remote": _REMOTE_NETWORK},
        frozenset({"remote"}),
    ),
    Ability(
        ("underlay.delay_ms", "underlay.side_ms", "underlay.access_delay_ms", "underlay.jitter"),
        frozenset({"emulated", "simulated"}),
        {"remote": _REMOTE_NETWORK},
    ),
    Ability(
        ("underlay.queue_ms",),
        frozenset({"emulated"}),
        {"simulated": "its access links drop nothing", "remote": _REMOTE_NETWORK},
    ),
    Ability(
        ("peer.send_queue_bytes", "peer.metrics", "supervision"),
        frozenset({"emulated", "remote"}),
        {"simulated": "it has no processes of peers"},
    ),
    Ability(
        ("prometheus.enabled", "prometheus.scrape_interval_s"),
        frozenset({"emulated", "remote"}),
        {"simulated": _VIRTUAL_TIME},
    ),
    Ability(
        ("capture.enabled", "capture.snaplen_bytes"),
        frozenset({"emulated"}),
        {"simulated": "it has no packets", "remote": "no packets are captured"},
    ),
    Ability(
        (
            "probes.packets_per_pair",
            "probes.during_per_s",
            *(f"verdict.rtt_error_{limit}" for limit in ("p50_ms", "p50_ratio", "p99_ms", "p99_ratio")),
            "verdict.lateness_p99_ms",
        ),
        frozenset({"emulated"}),
        dict.fromkeys(("simulated", "remote"), _NO_PLANE),
    ),
    Ability(
        ("verdict.wire_error_p99_ms",),
        frozenset({"emulated"}),
        dict.fromkeys(("simulated", "remote"), "no packets are captured"),
    ),
    Ability(
        ("simulator.processing_ms", "simulator.encode_frames"),
        frozenset({"simulated"}),
        dict.fromkeys(("emulated", "remote"), 'only testbed = "simulated" uses it'),
    ),
)


def refusals(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield the place and the problem of every key that the testbed cannot honour and that changes the run."""
    for ability, key in _ignored(experiment):
        if experiment.testbed in ability.refused:
            yield f"$.{key}", ability.why[experiment.testbed]


def ignored_keys(experiment: Experiment) -> Iterator[str]:
    """Yield a sentence for every key that is set and that the testbed ignores."""
    for ability, key in _ignored(experiment):
        if experiment.testbed not in ability.refused:
            yield f'{key} has no effect with testbed = "{experiment.testbed}": {ability.why[experiment.testbed]}'


def _ignored(experiment: Experiment) -> Iterator[tuple[Ability, str]]:
    for ability in ABILITIES:
        if experiment.testbed not in ability.testbeds:
            for key in ability.keys:
                if _value(experiment, key) != _value(DEFAULTS, key):
                    yield ability, key


def _value(experiment: Experiment, key: str) -> object:
    value: object = experiment
    for name in key.split("."):
        value = getattr(value, name)
    return value


DEFAULTS = Experiment(name="defaults")
