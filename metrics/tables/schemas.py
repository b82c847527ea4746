"""The columns of the tables as Spark types. docs/tables.md has the unit and meaning of each column."""

from typing import Final

import pyarrow as pa

from metrics.rundir import SCHEMA_VERSION, RunDir, RunDirError
from metrics.rundir.files import table_file
from metrics.rundir.parquet import version_of
from metrics.storage.parquet import read_footer

_COLUMNS: Final = {
    "nodes": """
        node int, host int, host_name string, city string, country string, latitude double, longitude double,
        machine string, wan_ip string, up_at_start boolean, adversary string,
        implementation string
    """,
    "subscriptions": "node int, topic bigint, from_ns bigint, to_ns bigint, to_end boolean, due_ns bigint",
    "instances": "node int, instance int, from_ns bigint, to_ns bigint, to_end boolean",
    "conns": """
        uid string, conn string, proto smallint, ts_ns bigint, duration_ns bigint, id_orig_h string, id_orig_p int,
        id_resp_h string, id_resp_p int, orig_node int, resp_node int, conn_state string, history string,
        orig_bytes bigint, resp_bytes bigint, missed_bytes bigint, orig_pkts bigint, orig_ip_bytes bigint,
        resp_pkts bigint, resp_ip_bytes bigint, orig_retx_bytes bigint, resp_retx_bytes bigint, n_frames bigint,
        n_topics bigint, n_logical_links bigint
    """,
    "frames": """
        uid string, conn string, direction string, vantage_host int, tap string, off bigint, len_bytes bigint,
        kind smallint, topics array<bigint>, message_id bigint, t_first_ns bigint, t_last_ns bigint, n_segments int,
        n_retx int, n_seconds int
    """,
    "hops": """
        conn string, incarnation int, direction string, off bigint, len_bytes bigint, kind smallint, message_id bigint,
        topics array<bigint>, src_node int, dst_node int, log_send_ns bigint, tap_tx_ns bigint, tap_tx_last_ns bigint,
        tap_rx_ns bigint, log_recv_ns bigint, d_sndbuf_ns bigint, d_wire_ns bigint, d_rcv_ns bigint,
        asked_delay_ms double, asked_jitter_ms double, n_retx int, n_seconds int, is_dup boolean, is_relay boolean,
        at_relay boolean
    """,
    "deliveries": """
        message_id bigint, topic bigint, publisher int, node int, publish_ns bigint, delivered_ns bigint,
        latency_ms double, wire_latency_ms double, least_latency_ms double, hops int, repeats bigint, copies bigint,
        direct_delay_ms double, stretch double, known boolean
    """,
    "copies": """
        message_id bigint, src_node int, dst_node int, log_send_ns bigint, tap_tx_ns bigint, tap_rx_ns bigint,
        log_recv_ns bigint, is_dup boolean, is_relay boolean, at_relay boolean
    """,
    "disclosures": "node int, subscriptions bigint, disclosed bigint, wrong bigint",
    "epochs": """
        epoch bigint, from_ns bigint, to_ns bigint, nodes bigint, score_mean double, messages bigint,
        deliveries_expected bigint, delivery_ratio double, latency_ms_mean double, latency_ms_p50 double,
        latency_ms_p99 double
    """,
    "messages": """
        message_id bigint, topics array<bigint>, publisher int, scheduled_ns bigint, publish_ns bigint,
        payload_bytes bigint, n_subscribers bigint, n_delivered bigint, t50_ms double, t90_ms double, t99_ms double,
        t100_ms double, n_transmissions bigint, n_reached bigint, redundancy double
    """,
    "pairs": """
        src_node int, dst_node int, packets bigint, lost bigint, queue_drops bigint, late bigint, asked_delay_ms double,
        asked_jitter_ms double, asked_loss_ratio double, error_ms_mean double, error_ms_max double
    """,
    "links": "node int, peer int, topic bigint, from_ns bigint, to_ns bigint",
    "wire_links": "node int, peer int, topic bigint, conn string, from_ns bigint, to_ns bigint",
    "physical_links": "node int, peer int, conn string, opened boolean, from_ns bigint, to_ns bigint",
    "sharing": """
        source string, at_ns bigint, node int, view_size_total bigint, view_size_unique bigint, degree bigint,
        link_sharing_ratio double
    """,
    "overlay": """
        at_ns bigint, nodes bigint, subscriptions bigint, logical_links bigint, physical_links bigint,
        view_size_total_mean double, view_size_total_max bigint, view_size_unique_mean double,
        view_size_unique_max bigint, in_degree_max bigint, degree_mean double, degree_max bigint,
        degree_p50 double, degree_p90 double, degree_p99 double, opened_links_mean double, opened_links_max bigint,
        opened_links_p99 double, accepted_links_max bigint, accepted_links_p99 double,
        link_sharing_ratio double, logical_per_physical_link double, components bigint,
        largest_component bigint, clustering double, clustering_global double, diameter bigint,
        path_length_mean double, topics bigint, topic_components bigint, topic_components_max bigint,
        topics_partitioned bigint, topic_diameter_max bigint, topic_view_components bigint,
        topic_view_components_max bigint
    """,
    "overlay_topics": """
        at_ns bigint, topic bigint, subscribers bigint, links bigint, components bigint, largest_component bigint,
        diameter bigint, view_links bigint, view_components bigint
    """,
    "overlay_degrees": """
        at_ns bigint, node int, subscriptions bigint, view_size_total bigint, view_size_unique bigint, in_degree bigint,
        degree bigint, opened bigint, accepted bigint
    """,
    "overhead": """
        node int, second_ns bigint, first_payload_bytes bigint, duplicate_payload_bytes bigint, framing_bytes bigint,
        control_bytes bigint, opaque_bytes bigint, retransmitted_bytes bigint, ack_bytes bigint, header_bytes bigint,
        other_bytes bigint, wire_bytes bigint
    """,
    "control": "node int, second_ns bigint, kind smallint, frames bigint, frame_bytes bigint",
    "churn_control": """
        kind smallint, frames bigint, frame_bytes bigint, joins bigint, leaves bigint, frames_per_change double
    """,
    "fidelity": """
        at_ns bigint, lateness_p50_ns bigint, lateness_p90_ns bigint, lateness_p99_ns bigint, lateness_max_ns bigint,
        intake_p99_ns bigint, intake_max_ns bigint, busy_ratio double, frames_in bigint, frames_out bigint,
        bytes_in bigint, bytes_out bigint, frames_late bigint, frames_waited bigint, dropped bigint, drops string,
        cpu_busy_ratio double, cpu_some_ratio double, steal_ratio double, publish_lag_ms_max double, send_ms_p99 double,
        receive_ms_p99 double, probes bigint, probe_error_ms_p99 double
    """,
    "stalls": "source string, cpu int, phase string, start_ns bigint, end_ns bigint",
    "checks": """
        name string, tested bigint, failed bigint, worst double, tolerance double, unit string, severity string,
        detail string, late bigint, explained bigint, allowed bigint, outcome string, scope string, material bigint
    """,
}


def _columns_of(declared: str) -> dict[str, str]:
    return dict(column.split() for column in declared.split(","))


TABLES: Final[dict[str, dict[str, str]]] = {name: _columns_of(columns) for name, columns in _COLUMNS.items()}
"""Every table that ``build`` always writes. ``packets`` and the tables of ``OPTIONAL`` are optional."""

GROUPS: Final = "groups"
GROUP_LINKS: Final = "group_links"
"""The tables of runs whose messages have expressions."""

FAULTS: Final = "faults"
"""The table of runs with faults."""

UNDERLAY_LINKS: Final = "underlay_links"
"""The table of runs whose underlay is a graph of routers and links."""

OPTIONAL: Final = {
    GROUPS: _columns_of("""
        message_id bigint, expression string, members bigint, reached bigint, latecomers bigint, false_positives bigint,
        false_positives_predicted double, relays bigint, others bigint, copies bigint, delay_ms double, bound_ms double
    """),
    GROUP_LINKS: _columns_of("""
        node int, peer int, copies bigint, expressions bigint, copies_on_wire bigint, expressions_on_wire bigint
    """),
    FAULTS: _columns_of("""
        fault int, phase string, from_ns bigint, to_ns bigint, messages bigint, deliveries_expected bigint,
        delivery_ratio double, latency_ms_mean double, latency_ms_p50 double, latency_ms_p99 double,
        latency_ms_max double, recovered_ms double
    """),
    UNDERLAY_LINKS: _columns_of("""
        link int, src_router int, dst_router int, src_name string, dst_name string, delay_ms double, rate_mbit double,
        queue_ms double, packets bigint, wire_bytes bigint, pairs bigint, queue_drops bigint, wait_ms_p50 double,
        wait_ms_p99 double, wait_ms_max double, copies bigint, messages bigint, copies_max bigint
    """),
}
"""Tables that are written only for runs with such messages, faults or underlays."""

_ARROW: Final[dict[str, pa.DataType]] = {
    "array<bigint>": pa.list_(pa.int64()),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "string": pa.string(),
}


def schema_of(columns: str) -> pa.Schema:
    """Return columns that are declared as in SQL, as Arrow types."""
    return pa.schema([(name, _ARROW[kind]) for name, kind in (column.split() for column in columns.split(","))])


def arrow_schema(table: str) -> pa.Schema:
    """Return the columns of a table as Arrow types, for tables that kernels make."""
    columns = TABLES.get(table) or OPTIONAL[table]
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])


def require_tables(run: RunDir) -> int:
    """Check that an analysed run's tables can be read. Tables of an older version can be read if no column is missing.

    All tables are made together. Parts that Spark wrote do not say a version.

    Returns:
        Their schema version.

    Raises:
        RunDirError: the tables are of a newer version, or one lacks a column.
    """
    parts = {name: min((run.tables / table_file(name)).glob("*.parquet"), default=None) for name in TABLES}
    footers = {name: read_footer(part) for name, part in parts.items() if part is not None}
    version = max(map(version_of, footers.values()), default=0)
    lacking = [
        f", but {name} lacks {', '.join(sorted(columns))}"
        for name, footer in footers.items()
        if (columns := TABLES[name].keys() - set(footer.schema.to_arrow_schema().names))
    ]
    if version > SCHEMA_VERSION or lacking:
        known = f"its tables have schema version {version}, and this Trellis reads versions up to {SCHEMA_VERSION}"
        problem = f"{known}{''.join(lacking[:1])}; compute the tables again: trellis report {run.path}"
        raise RunDirError(run.path, problem)
    for name, footer in footers.items():
        types = {field.name: field.type for field in footer.schema.to_arrow_schema()}
        others = [field.name for field in arrow_schema(name) if not _is_alike(field.type, types[field.name])]
        if others:
            problem = f"{name} has other values in {', '.join(others)} than it should; compute the tables again"
            raise RunDirError(run.path, f"{problem}: trellis report {run.path}")
    return version


def _is_alike(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Return whether values of both types are integers, numbers, truth values, strings, or lists of integers."""
    if pa.types.is_list(wanted):
        return pa.types.is_list(found) and _is_alike(wanted.value_type, found.value_type)
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return any(is_kind(wanted) and is_kind(found) for is_kind in kinds)
