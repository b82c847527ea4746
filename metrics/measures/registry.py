"""Every measure by its name: the measures of Trellis, then, in their families, those of plugins (``peer.plugins``).

Families are complete once this module is imported.
"""

from typing import Any

from metrics.measures.attacks import ATTACK, DISCLOSURE, SLOTS
from metrics.measures.deliveries import DELIVERIES
from metrics.measures.emulation import EMULATION
from metrics.measures.groups import GROUPS, NEWCOMERS
from metrics.measures.interests import INTERESTS
from metrics.measures.learning import LEARNING, SCORES
from metrics.measures.measure import Addition, Family, Measure
from metrics.measures.resources import RESOURCES
from metrics.measures.snapshots import DISTANCES, GRAPH, LINKS, NODES, TOPICS, VIEWS, WIRE_LINKS
from metrics.measures.traffic import TRAFFIC
from metrics.measures.underlay import UNDERLAY
from peer.plugins import PluginError, added, name_is_taken

OVERLAY: tuple[Family[Any], ...] = (NODES, LINKS, GRAPH, DISTANCES, VIEWS, TOPICS)
"""Measures of a snapshot."""

STUDIED: tuple[Family[Any], ...] = (
    INTERESTS,
    *OVERLAY,
    SLOTS,
    DELIVERIES,
    GROUPS,
    NEWCOMERS,
    UNDERLAY,
    SCORES,
    DISCLOSURE,
    TRAFFIC,
)
"""The families that a study may name: a simulation in memory has their facts."""

FAMILIES: tuple[Family[Any], ...] = (*STUDIED, WIRE_LINKS, LEARNING, ATTACK, EMULATION, RESOURCES)
"""Every family."""

REPORTED: tuple[Family[Any], ...] = (DELIVERIES, TRAFFIC, EMULATION, RESOURCES, GROUPS, LEARNING, ATTACK, DISCLOSURE)
"""The families whose measures from plugins a run's report has, too."""

_MEASURE_OF = {"messages_published": "messages"}
"""Headline numbers with another name than their measure."""

_LEAST = ("least_delay_ms_p50", "least_delay_ms_p99")

_OWN_HEADLINE = (
    *("messages_published", "deliveries_expected", "delivery_ratio", "deliveries_unknown"),
    *(f"propagation_delay_ms_{statistic}" for statistic in ("mean", "p50", "p90", "p99", "max")),
    *_LEAST,
    *("hops_mean", "hops_p50", "hops_p99", "hops_max", "stretch_p50", "duplicates_per_delivery"),
    *("repeated_deliveries", "relay_ratio"),
    *("traffic_overhead_ratio", "traffic_overhead_above_20_ratio"),
    *(f"node_traffic_overhead_ratio_{statistic}" for statistic in ("mean", "p50", "p90", "p99", "max")),
    *("view_size_total_mean", "view_size_unique_mean", "link_sharing_ratio", "logical_per_physical_link"),
    *WIRE_LINKS.names,
    *("degree_mean", "degree_max"),
    *("degree_p50", "degree_p90", "degree_p99"),
    *("control_bytes_per_peer_per_s", "clustering", "diameter", "path_length_mean"),
    *("topics", "topic_components", "topic_components_max", "topics_partitioned", "topic_diameter_max"),
    *(*GROUPS.names, *LEARNING.names, *ATTACK.names, *DISCLOSURE.names),
    *(name for name in EMULATION.names if name not in ("stretch_p50", *_LEAST)),
    *RESOURCES.names,
)


def _add_measures() -> tuple[str, ...]:
    """Add the measures of plugins to their families, and return the names of the headline numbers among them.

    Raises:
        PluginError: a plugin has another object, an unknown family, or a name that is taken.
    """
    found = []
    for plugin, addition in added("measures", Addition):
        name, family = addition.name, addition.family
        if family not in FAMILIES:
            raise PluginError(f"{plugin.shown}: the measure {name!r} is in no family of metrics.measures.registry")
        if not name.isidentifier():
            raise PluginError(f"{plugin.shown}: expected a Python identifier as the name of a measure, got {name!r}")
        if name in _MEASURE_OF or any(name in other.names for other in FAMILIES):
            raise name_is_taken(plugin, name)
        family.measures.append(addition.measure)
        if family in REPORTED and not addition.measure.by:
            found.append(name)
    return tuple(found)


HEADLINE = (*_OWN_HEADLINE, *_add_measures())
"""The headline numbers of a run, in the order of ``summary.json``."""

FIRST_NUMBERS = (
    *("delivery_ratio", "propagation_delay_ms_p50", "propagation_delay_ms_p99", "duplicates_per_delivery"),
    *("traffic_overhead_ratio", "degree_mean", "degree_max", "control_bytes_per_peer_per_s"),
    *("topics_partitioned", "rtt_error_ms_p99"),
)
"""The headline numbers that a command prints unless all are asked for."""

MEASURES: dict[str, Measure[Any]] = {measure.name: measure for family in FAMILIES for measure in family.measures}


def find_measure(name: str) -> Measure[Any] | None:
    """Return the measure of a headline number; None for a name that another version of the code wrote."""
    return MEASURES.get(_MEASURE_OF.get(name, name))
