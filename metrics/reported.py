"""What the peers of a run report about themselves. What they do not report is absent from tables and results, never 0.

Python peers report everything. Another program that reads and writes lines (``peer.events = "lines"``) reports
publications and deliveries, and what ``peer.says`` names; Trellis knows none of its frames. Programs that know nothing
of Trellis (``peer.events = "none"``) report nothing.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from metrics.rundir import RunDir

FRAME: Final = "frame"
LINK: Final = "link"
GRAFT: Final = "graft"
DUPLICATE: Final = "duplicate"
_OPENING: Final = "opening"  # which of two neighbours opened a connection
RELAY: Final = "relay"  # copies at nodes that do not subscribe
MESSAGE: Final = "message"  # publications and deliveries
EVERYTHING: Final = frozenset({FRAME, LINK, GRAFT, DUPLICATE, _OPENING, RELAY})
"""Everything that Python peers report besides messages."""

_NEEDS: Final = {
    FRAME: "control_.*|logical_per_physical_link_on_wire|n_transmissions|n_reached|redundancy"
    "|n_frames|n_topics|n_logical_links|(first|duplicate)_payload_bytes|framing_bytes",
    LINK: "physical_links|degree.*|(largest_)?components?|clustering.*|diameter|path_length_mean|links"
    "|logical_per_physical_link|topic_components.*|topics_partitioned|topic_diameter_max",
    GRAFT: "logical_links|view_.*|in_degree.*|link_sharing_ratio|logical_per_physical_link|topic_view_components.*",
    DUPLICATE: "duplicates_per_delivery|copies",
    _OPENING: "opened.*|accepted.*",
    RELAY: "relay_ratio|(node_)?traffic_overhead.*",
    MESSAGE: "messages_published|deliveries_expected|deliveries_unknown|repeated_deliveries",
}
"""Columns and measures without a value (as a regular expression), by what must be reported for them."""

Missing = frozenset[str]


def find_missing(run: RunDir) -> Missing:
    """Return what the peers of a run do not report: keys of ``_NEEDS``."""
    peer: Mapping[str, Any] = run.experiment.get("peer", {})
    if reports_nothing(run.experiment):
        return EVERYTHING | {MESSAGE}
    return EVERYTHING - set(peer["says"]) if peer.get("events") == "lines" else frozenset()


def reports_nothing(experiment: Mapping[str, Any]) -> bool:
    """Return whether the programs of a run report nothing, not even messages. ``experiment``: the resolved one."""
    return bool(experiment.get("peer", {}).get("events") == "none")


def name_implementations(experiment: Mapping[str, Any], *, versions: bool = False) -> str:
    """Return the names of the implementations of a run's peers; empty if the experiment names none.

    Args:
        experiment: the resolved experiment.
        versions: whether each name is followed by its version.
    """
    programs = experiment.get("peer", {}).get("programs", ())
    form = "{implementation} ({version})" if versions else "{implementation}"
    return ", ".join(form.format_map(each) for each in programs)


def is_hidden(name: str, missing: Missing) -> bool:
    """Return whether a column or measure has no value because peers do not report what it needs."""
    return any(re.fullmatch(_NEEDS[each], name) for each in missing)


def hide_values(row: Mapping[str, Any], missing: Missing) -> dict[str, Any]:
    """Return a row with None for each unknown value."""
    return {name: None if is_hidden(name, missing) else value for name, value in row.items()}


def hide_columns(table: pa.Table, missing: Missing) -> pa.Table:
    """Return a table with nulls in each unknown column."""
    columns = {
        field.name: pa.nulls(len(table), field.type) if is_hidden(field.name, missing) else table[field.name]
        for field in table.schema
    }
    return pa.table(columns, schema=table.schema)
