"""Which ability of a testbed each key of an experiment needs: one table.

The descriptions of testbeds say which abilities each has, and why it lacks the others. A key that is set for a testbed
without the ability is refused if the run would not be what was asked, and remarked on if only less is observed or
judged. A key counts as set if its value is neither none nor the default.
"""

from collections.abc import Iterator

from msgspec import Struct

from harness.experiment.faults import VERBS
from harness.experiment.form import Experiment
from harness.experiment.sections.faults import DegradeSpec, FaultSpec
from harness.testbeds.description import Ability
from harness.testbeds.registry import find_lack


class Demand(Struct, frozen=True):
    """Keys that only some testbeds can honour.

    Attributes:
        keys: dotted, of the experiment.
        ability: what a testbed needs for them.
        refused: whether other testbeds refuse the keys; otherwise they ignore them.
    """

    keys: tuple[str, ...]
    ability: Ability
    refused: bool = False


DEMANDS: tuple[Demand, ...] = (
    Demand(("inventory",), "inventory", refused=True),
    Demand(("time_dilation",), "dilate", refused=True),
    Demand(("peer.command",), "command", refused=True),
    Demand(("peer.script", "peer.connect_at_s"), "names", refused=True),
    Demand(("peer.record",), "record", refused=True),
    Demand(("churn.silent_ratio",), "vanish", refused=True),
    Demand(tuple(f"faults.{verb}" for verb in VERBS if verb != "pause"), "faults", refused=True),
    Demand(
        tuple(f"faults.degrade.{key}" for key in ("duplicate_ratio", "reorder_ratio", "reorder_ms")),
        "disorder",
        refused=True,
    ),
    Demand(("faults.pause",), "pause", refused=True),
    Demand(
        tuple(f"underlay.{key}" for key in ("loss_ratio", "links")),
        "shape",
        refused=True,
    ),
    Demand(
        tuple(f"underlay.{key}" for key in ("rate_mbit", "up_mbit", "down_mbit", "link_rate_mbit")),
        "rate",
        refused=True,
    ),
    Demand(("underlay.delay_ms", "underlay.side_ms", "underlay.access_delay_ms"), "shape"),
    Demand(("underlay.jitter", "underlay.jitter_correlation_ms"), "shape"),
    Demand(
        tuple(
            f"underlay.{key}"
            for key in ("queue_ms", "queue_bytes", "link_queue_ms", "links.queue_ms", "links.queue_bytes")
        ),
        "queue",
    ),
    Demand(("underlay.mtu_bytes",), "mtu", refused=True),
    Demand(("peer.send_queue_bytes", "peer.per_process", "peer.metrics", "supervision"), "processes"),
    Demand(("prometheus.enabled", "prometheus.scrape_interval_s"), "processes"),
    Demand(("capture.enabled", "capture.snaplen_bytes"), "capture"),
    Demand(("probes.packets_per_pair", "probes.during_per_s"), "probe"),
    Demand(
        (
            *(f"verdict.rtt_error_{limit}" for limit in ("p50_ms", "p50_ratio", "p99_ms", "p99_ratio")),
            "verdict.wire_error_p99_ms",
            "verdict.lateness_p99_ms",
        ),
        "certify",
    ),
    Demand(("plane",), "certify"),
    Demand(("simulator.processing_ms", "simulator.encode_frames"), "simulate"),
)


def refusals(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield the place and the problem of every key that the testbed cannot honour and that changes the run."""
    for demand, key, reason in _unmet(experiment):
        if demand.refused:
            yield f"$.{key}", reason


def ignored_keys(experiment: Experiment) -> Iterator[str]:
    """Yield a sentence for every key that is set and that the testbed ignores."""
    for demand, key, reason in _unmet(experiment):
        if not demand.refused:
            yield f'{key} has no effect with testbed = "{experiment.testbed}": {reason}'


def _unmet(experiment: Experiment) -> Iterator[tuple[Demand, str, str]]:
    """Yield the place of every key that is set and that the testbed cannot honour, with its demand and the reason."""
    for demand in DEMANDS:
        if (reason := find_lack(experiment.testbed, demand.ability, experiment.plane)) is not None:
            for key in demand.keys:
                usual = [None, *(value for _, value in _values(DEFAULTS, key))]
                for place, value in _values(experiment, key):
                    if value not in usual:
                        yield demand, place, reason


def _values(experiment: Experiment, key: str) -> list[tuple[str, object]]:
    """Return the place and the value of a key; of a key in a list of entries, those of every entry."""
    found: list[tuple[str, object]] = [("", experiment)]
    for name in key.split("."):
        entries = [entry for place, value in found for entry in _entries(place, value)]
        found = [(f"{place}.{name}".lstrip("."), getattr(value, name)) for place, value in entries]
    return found


def _entries(place: str, value: object) -> list[tuple[str, object]]:
    """Return the entries of a list with their places; of another value, the value itself; of None, nothing."""
    if isinstance(value, tuple):
        return [(f"{place}[{number}]", entry) for number, entry in enumerate(value)]
    return [] if value is None else [(place, value)]


DEFAULTS = Experiment(name="defaults", faults=(FaultSpec(at_s=0.0, degrade=DegradeSpec()),))
"""An experiment in which no key is set; it has an entry of each list whose keys have defaults other than none."""
