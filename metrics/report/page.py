"""The report's page: one HTML file that opens without a network."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from metrics.measures.measure import Measure
from metrics.measures.registry import MEASURES, find_measure
from metrics.recount import recount
from metrics.report.overlay import measures_over_time, topics_by_shape
from metrics.report.probing import first_packet_rows, sweep_rows
from metrics.report.run import Run
from peer.protocols.registry import PROTOCOLS

_NUMBERS = (
    *("delivery_ratio", "propagation_delay_ms_mean", "propagation_delay_ms_p50", "propagation_delay_ms_p99"),
    *("view_size_total_mean", "view_size_unique_mean", "link_sharing_ratio", "duplicates_per_delivery", "relay_ratio"),
    *("traffic_overhead_ratio", "traffic_overhead_above_20_ratio"),
    *("disclosure_ratio", "degree_mean", "degree_max", "topics_partitioned", "topic_diameter_max"),
    *("control_bytes_per_peer_per_s", "rtt_error_ms_p50", "rtt_error_ms_p99"),
)
"""The headline numbers at the top of the page."""


def render(run: Run, figures: list[dict[str, str]], missing: list[str]) -> str:
    """The page of a run.

    Args:
        run: the analysed run.
        figures: name, title, caption and base64 PNG of each figure, in order.
        missing: titles of figures that had nothing to show.
    """
    summary = run.summary
    return template("page.html.j2").render(
        run=run,
        summary=summary,
        sentence=sentence(run),
        reading=reading(run),
        expectation=expectation(run),
        numbers=[
            {"label": MEASURES[name].text, "value": format_value(MEASURES[name], value)}
            for name in _NUMBERS
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


def template(name: str) -> Template:
    """A page's template, with the filters ``number`` and ``label``."""
    environment = Environment(loader=PackageLoader("metrics.report", "."), autoescape=True, undefined=StrictUndefined)
    environment.filters.update(number=format_number, label=label_of)
    return environment.get_template(name)


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
        f"seed {run.plan.seed}, testbed {experiment['testbed']}{slowly}."
    )


def reading(run: Run) -> str | None:
    """What the run's protocol has to say of the run; None where that is nothing."""
    protocol = PROTOCOLS.get(run.experiment["protocol"])
    if protocol is None or protocol.report_note is None:
        return None
    return protocol.report_note(run.experiment[protocol.section])


def expectation(run: Run) -> str:
    """Which deliveries are expected, and how many ``workload.settle_s`` leaves out by the schedule."""
    rule = (
        "A delivery is expected of each node, other than the publisher, that was up and subscribed at the publication"
    )
    settle_s = run.settle_ns / 1e9
    if not settle_s:
        return f"{rule}."
    left_out = recount(run, 0, 0).expected - recount(run, 0, run.settle_ns).expected
    return (
        f"{rule}, and had been up from the start or for at least {settle_s:g} s. Of nodes that had joined later, "
        f"{left_out:,} deliveries are left out."
    )


def label_of(name: str) -> str:
    """The meaning and the unit of a headline number; empty for one of another version of the code."""
    measure = find_measure(name)
    return measure.label if measure is not None else ""


def format_value(measure: Measure[Any], value: float) -> str:
    """A measure's value for people, with its unit unless the measure's text names it; shares in percent."""
    return f"{value:.2%}" if measure.unit == "ratio" else f"{format_number(value)} {measure.unsaid_unit}".rstrip()


def format_number(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A number for people: four significant digits, thousands separated; anything else as it is."""
    if value is None:
        return "not computed"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}"
