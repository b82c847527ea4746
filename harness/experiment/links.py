"""The rules of links in ``[underlay]`` and ``[[underlay.links]]``: which keys each takes, which values fit together."""

from collections.abc import Iterator

from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import LinksSpec, UnderlaySpec
from topologies.kinds import carried_by
from topologies.limits import SLOWEST_MBIT

RATES = ("rate_mbit", "up_mbit", "down_mbit")
"""The keys that set rates of access links; later ones take the place of earlier ones."""

ACCESS = (*RATES, "queue_ms", "queue_bytes")
"""The keys about access links, of the section and of its entries."""

GRAPH = ("link_rate_mbit", "link_queue_ms")
"""The keys of the section about links of a graph."""

PAIRS = ("jitter_ms", "loss_ratio")
"""The keys of an entry about pairs."""


def link_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    """Yield every rule as (broken, place, problem)."""
    underlay = experiment.underlay
    sections: dict[str, UnderlaySpec | LinksSpec] = {"$.underlay": underlay}
    sections |= {f"$.underlay.links[{number}]": entry for number, entry in enumerate(underlay.links)}
    is_limited = any(getattr(section, key) for section in sections.values() for key in RATES)
    is_limited |= "rates" in carried_by(underlay.kind)
    for place, section in sections.items():
        yield from _access_rules(place, section, is_limited)
        if isinstance(section, LinksSpec):
            yield from _entry_rules(place, section)
    yield from _graph_rules(underlay)


def _graph_rules(underlay: UnderlaySpec) -> Iterator[tuple[bool, str, str]]:
    yield _slow("$.underlay.link_rate_mbit", underlay.link_rate_mbit)
    for key in GRAPH:
        named = getattr(underlay, key) != getattr(UnderlaySpec(), key)
        unused = f'kind = "{underlay.kind}" has no graph of links'
        yield named and "graph" not in carried_by(underlay.kind), f"$.underlay.{key}", unused


def _slow(place: str, rate_mbit: float) -> tuple[bool, str, str]:
    """Return the rule that a rate is not too slow."""
    problem = f"expected 0 or at least {SLOWEST_MBIT:g}, got {rate_mbit:g}"
    return 0 < rate_mbit < SLOWEST_MBIT, place, problem


def _access_rules(place: str, section: UnderlaySpec | LinksSpec, is_limited: bool) -> Iterator[tuple[bool, str, str]]:
    for key in RATES:
        yield _slow(f"{place}.{key}", getattr(section, key) or 0.0)
    if section.queue_bytes is not None:
        key = f"{place}.queue_bytes"
        yield section.queue_ms != type(section)().queue_ms, key, "queue_ms is set, too: expected one of them"
        yield not is_limited, key, "expected an access link with a rate: no other has a queue"


def _entry_rules(place: str, entry: LinksSpec) -> Iterator[tuple[bool, str, str]]:
    named = [key for key in ("nodes", "between") if getattr(entry, key) is not None]
    yield len(named) != 1, place, f"expected one of nodes and between, got {' and '.join(named) or 'none'}"
    given = [key for key in (*ACCESS, *PAIRS) if getattr(entry, key) is not None]
    yield not given, place, f"expected at least one of {', '.join((*ACCESS, *PAIRS))}, got none"
    shared = "an access link is shared by all pairs of a host: name the hosts by nodes"
    for key in given:
        yield entry.between is not None and key in ACCESS, f"{place}.{key}", shared
    aimless = entry.direction != "both" and not {*given} & {*PAIRS}
    yield aimless, f"{place}.direction", f"only {' and '.join(PAIRS)} have a direction"
