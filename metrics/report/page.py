"""The report's page: one HTML file that opens without a network."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from metrics.report.overlay import measures_over_time, topics_by_shape
from metrics.report.probing import first_packet_rows, sweep_rows
from metrics.report.run import Run
from peer.protocols.registry import PROTOCOLS

_NUMBERS = (
    ("delivery_ratio", "delivery ratio", "{:.2%}"),
    ("propagation_delay_ms_mean", "propagation delay, mean", "{:.1f} ms"),
    ("propagation_delay_ms_p50", "propagation delay, median", "{:.1f} ms"),
    ("propagation_delay_ms_p99", "propagation delay, 99th percentile", "{:.1f} ms"),
    ("view_size_total_mean", "logical links a node", "{:.2f}"),
    ("view_size_unique_mean", "different neighbours in a node's views", "{:.2f}"),
    ("link_sharing_ratio", "logical links a neighbour", "{:.2f}"),
    ("duplicates_per_delivery", "further copies a delivery, those at relays too", "{:.2f}"),
    ("relay_ratio", "copies that are first ones at relays", "{:.1%}"),
    ("disclosure_ratio", "subscriptions to topics they do not have that askers concluded", "{:.1%}"),
    ("degree_mean", "physical links a node", "{:.2f}"),
    ("degree_max", "physical links, largest", "{:.0f}"),
    ("topics_partitioned", "partitioned topics", "{:.0f}"),
    ("topic_diameter_max", "largest diameter of a topic", "{:.0f}"),
    ("control_bytes_per_peer_per_s", "control traffic a peer", "{:.0f} B/s"),
    ("rtt_error_ms_p50", "RTT error of the idle network, median", "{:.3f} ms"),
    ("rtt_error_ms_p99", "RTT error of the idle network, 99th percentile", "{:.3f} ms"),
)


def render(run: Run, figures: list[dict[str, str]], missing: list[str]) -> str:
    """The page of a run.

    Args:
        run: the analysed run.
        figures: name, title, caption and base64 PNG of each figure, in order.
        missing: titles of figures that had nothing to show.
    """
    environment = Environment(loader=PackageLoader("metrics.report", "."), autoescape=True, undefined=StrictUndefined)
    environment.filters["number"] = format_number
    summary = run.summary
    return environment.get_template("page.html.j2").render(
        run=run,
        summary=summary,
        sentence=sentence(run),
        reading=reading(run),
        numbers=[
            {"label": label, "value": form.format(value)}
            for name, label, form in _NUMBERS
            if (value := summary.headline.get(name)) is not None
        ],
        figures=figures,
        overlay=measures_over_time(run),
        topics=topics_by_shape(run),
        sweeps=sweep_rows(run),
        first_packets=first_packet_rows(run),
        missing=missing,
        provenance=run.provenance(),
    )


def sentence(run: Run) -> str:
    """The run in one sentence: what ran where, for how long."""
    experiment = run.experiment
    peers, sites = len(run.nodes), run.hosts["site"].nunique()
    places = f"in {sites} cities" if run.has_map else f"on {sites} sites"
    messages = run.summary.headline.get("messages_published")
    published = "" if messages is None else f", {messages:,} messages published in {run.duration_s:g} s"
    dilation = run.manifest.time_dilation
    slowly = "" if dilation == 1 else f", {dilation:g} times slower than reported"
    return (
        f"{peers} peers {places} ({experiment['underlay']['kind']}), protocol {experiment['protocol']}{published}, "
        f"seed {run.plan['seed']}, testbed {experiment['testbed']}{slowly}."
    )


def reading(run: Run) -> str | None:
    """What the run's protocol has to say of the run; None where that is nothing."""
    protocol = PROTOCOLS.get(run.experiment["protocol"])
    if protocol is None or protocol.report_note is None:
        return None
    return protocol.report_note(run.experiment[protocol.section])


def format_number(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A number for people: four significant digits, thousands separated; anything else as it is."""
    if value is None:
        return "not computed"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}"
