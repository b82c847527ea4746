"""The units of columns, by their names: a name has the same unit in every table."""

import re
from typing import Final

_SUFFIX: Final = re.compile(r"_(ns|ms|s|bytes|ratio)(?=_|$)")

_BY_NAME: Final[dict[str, str]] = {
    name: unit
    for unit, names in {
        "1": "stretch redundancy link_sharing_ratio logical_per_physical_link score_mean",
        "bytes": "off pcap_off bytes_in bytes_out window",
        "ratio": "clustering clustering_global",
        "degrees": "latitude longitude",
        "copies": "copies copies_max copies_on_wire n_transmissions",
        "pairs": "pairs",
        "expressions": "expressions expressions_on_wire",
        "deliveries": "deliveries_expected n_delivered repeats",
        "nodes": """nodes n_subscribers n_reached view_size_unique view_size_unique_mean view_size_unique_max in_degree
            in_degree_max subscribers largest_component joins leaves members reached latecomers false_positives
            false_positives_predicted relays others""",
        "subscriptions": "subscriptions disclosed wrong",
        "messages": "messages",
        "topics": "topics topics_partitioned n_topics",
        "links": """hops logical_links physical_links n_logical_links links view_links degree degree_mean degree_max
            degree_p50 degree_p90 degree_p99 opened accepted opened_links_mean opened_links_max opened_links_p99
            accepted_links_max accepted_links_p99 view_size_total view_size_total_mean view_size_total_max diameter
            path_length_mean topic_diameter_max""",
        "components": """components view_components topic_components topic_components_max topic_view_components
            topic_view_components_max""",
        "frames": "frames frames_per_change n_frames",
        "packets": """n_segments n_retx orig_pkts resp_pkts frames_in frames_out frames_late frames_waited dropped sent
            received packets lost queue_drops orig_packets resp_packets orig_retx_packets resp_retx_packets
            orig_lost_packets resp_lost_packets orig_unsent_packets resp_unsent_packets""",
        "seconds": "n_seconds",
        "Mbit/s": "rate_mbit",
        "probes": "probes",
    }.items()
    for name in names.split()
}


def unit_of(column: str) -> str | None:
    """Return a column's unit: ``1`` for plain numbers, ``ratio`` for shares (0..1), None for identifiers."""
    if column in _BY_NAME:
        return _BY_NAME[column]
    found = _SUFFIX.search(column)
    return found[1] if found else None
