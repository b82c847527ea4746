"""The report's figures as pictures: nothing over anything else, few bytes, and colours for light and dark pages."""

import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.report import comparison
from metrics.report.canvas import (
    WIDTH,
    axes_grid,
    distinct_points,
    legend_above,
    log_scale,
    plain_axes,
    plot_cdf,
    plot_seconds,
    whole_numbers,
)
from metrics.report.figures.chapter import Drawing, number, percent
from metrics.report.figures.network import OVERHEAD
from metrics.report.figures.registry import CHAPTERS, FIGURES
from metrics.report.figures.world import draw_world
from metrics.report.palette import PALETTE, palette_css
from metrics.report.svg import to_element, to_svg
from metrics.totals import Totals
from tests.examples import examples, long_unless
from tests.fabricated_totals import make_totals
from tests.figure_layout import faults
from tests.grouped_tables import grouped

SECOND = 1_000_000_000
ZERO_NS = 50 * SECOND


class Large:
    """A run with tables of any size and spread, as the figures read it."""

    def __init__(self, nodes: int, seconds: int, scale: float, seed: int = 1) -> None:
        self.zero_ns, self.duration_s, self.is_asked_for = ZERO_NS, float(seconds), True
        self.scrape_interval_s, self.dilation = 5.0, 1.0
        random = np.random.default_rng(seed)
        self._random, self._nodes, self._scale = random, nodes, scale
        at_ns = ZERO_NS + np.arange(-10, seconds) * SECOND
        many = nodes * 20
        latency = random.lognormal(4, 1, many) * scale
        node = random.integers(0, nodes, many)
        publish_ns = ZERO_NS + random.integers(0, seconds, many) * SECOND
        self._tables: dict[str, pd.DataFrame] = {
            "deliveries": pd.DataFrame(
                {
                    "node": node,
                    "topic": random.integers(0, nodes, many),
                    "publish_ns": publish_ns,
                    "delivered_ns": np.where(random.random(many) < 0.98, publish_ns, np.nan),
                    "latency_ms": np.where(random.random(many) < 0.98, latency, np.nan),
                    "direct_delay_ms": latency / 2,
                    "copies": random.integers(1, 1 + nodes, many),
                }
            ),
            "received": pd.DataFrame(
                {"dst_node": node, "at_relay": random.random(many) < 0.3, "publish_ns": publish_ns}
            ),
            "faults": pd.DataFrame(
                {
                    "fault": [0, 0, 0],
                    "phase": ["before", "during", "after"],
                    "from_ns": ZERO_NS + np.arange(3) * seconds * SECOND // 3,
                    "to_ns": ZERO_NS + np.arange(1, 4) * seconds * SECOND // 3,
                    "messages": [10, 10, 10],
                    "deliveries_expected": [100, 100, 100],
                    "delivery_ratio": [1.0, 0.5, 0.9],
                    **{
                        f"latency_ms_{name}": np.array([1.0, 9.0, 2.0]) * 100 * scale
                        for name in ("mean", "p50", "p99", "max")
                    },
                    "recovered_ms": [np.nan, np.nan, 1234.0],
                }
            ),
            "epochs": pd.DataFrame(
                {
                    "epoch": range(30),
                    "latency_ms_mean": np.linspace(9, 1, 30) * 1234 * scale,
                    "delivery_ratio": 1.0,
                    "score_mean": np.linspace(-1e6, 1e6, 30),
                }
            ),
            "sharing": pd.DataFrame(
                [
                    (source, instant, each, 1000 * scale + each, 10 + each)
                    for source in ("trace", "wire")
                    for instant in at_ns
                    for each in range(3)
                ],
                columns=["source", "at_ns", "node", "view_size_total", "degree"],
            ),
            "overlay_degrees": pd.DataFrame(
                {
                    name: random.integers(1, 3 * nodes, nodes)
                    for name in ("degree", "opened", "view_size_unique", "in_degree")
                }
            ),
            "overlay_topics": pd.DataFrame(
                {name: random.integers(1, nodes + 1, nodes) for name in ("subscribers", "components", "diameter")}
            ),
            "overhead": pd.DataFrame(
                {"second_ns": at_ns} | {name: random.integers(0, 10**6, len(at_ns)) for name, _, _ in OVERHEAD}
            ),
            "fidelity": pd.DataFrame(
                {"at_ns": at_ns}
                | {f"lateness_{part}_ns": random.lognormal(10, 2, len(at_ns)) for part in ("p50", "p99", "max")}
                | {f"{part}_ratio": random.random(len(at_ns)) for part in ("busy", "cpu_busy", "cpu_some")}
            ),
            "underlay_links": pd.DataFrame(
                {
                    "src_router": np.arange(nodes),
                    "dst_router": (np.arange(nodes) + 1) % nodes,
                    "src_name": [f"San Cristóbal de las Casas {number}" for number in range(nodes)],
                    "dst_name": [f"r{number}" for number in range(nodes)],
                    "wire_bytes": random.integers(0, 10**9, nodes),
                    "copies": random.integers(1, 10**6, nodes),
                    "messages": random.integers(1, 10**3, nodes),
                    "copies_max": random.integers(1, 10**4, nodes),
                }
            ),
            "stalls": pd.DataFrame(
                {
                    "source": np.where(random.random(many) < 0.5, "host", "plane"),
                    "start_ns": ZERO_NS + random.integers(0, seconds, many) * SECOND,
                    "end_ns": ZERO_NS + seconds * SECOND + random.integers(1, SECOND, many),
                }
            ),
        }

    def hides(self, *names: str) -> bool:
        return False

    def table(self, name: str) -> pd.DataFrame | None:
        return self._tables.get(name)

    last = table
    grouped = grouped
    adversaries: frozenset[int] = frozenset()

    @property
    def totals(self) -> Totals:
        columns = ("d_sndbuf_ns", "d_wire_ns", "d_rcv_ns", "asked_delay_ms")
        values = self._random.lognormal(2, 2, (20 * self._nodes, len(columns))) * self._scale * [1e6, 1e6, 1e6, 1]
        hops = pd.DataFrame(values, columns=columns)
        return make_totals(self.zero_ns, self._tables["deliveries"], self._tables["received"], hops)

    def achieved(self) -> pd.DataFrame:
        asked = self._random.random(2 * self._nodes**2) * 300 * self._scale
        error = self._random.lognormal(-3, 3, len(asked))
        phase = np.array(["before", "during", "after"])[np.arange(len(asked)) % 3]
        return pd.DataFrame({"phase": phase, "asked_rtt_ms": asked, "rtt_ms": asked + error, "error_ms": error})

    def samples(self, metric: str) -> pd.DataFrame:
        at_ns = ZERO_NS + np.arange(-10, self.duration_s, self.scrape_interval_s) * SECOND
        value = np.cumsum(self._random.lognormal(0, 1, len(at_ns))) * self._scale
        return pd.concat([pd.DataFrame({"node": node, "ts_ns": at_ns, "value": value}) for node in range(self._nodes)])

    @property
    def hosts(self) -> pd.DataFrame:
        random = np.random.default_rng(5)
        near = random.normal(0, 1, (2, self._nodes))  # as close as Europe's cities
        sites = [f"San Cristóbal de las Casas {number % 200}" for number in range(self._nodes)]
        return pd.DataFrame({"site": sites, "latitude": 48 + 4 * near[0], "longitude": 10 + 9 * near[1]})

    def host_links(self) -> list[tuple[int, int]]:
        return [(a, b) for a in range(self._nodes) for b in range(a)][:5000]


SIZES = {
    "small": (4, 3, 1.0),
    "usual": (20, 40, 1.0),
    "slow": (30, 20, 3000.0),
    "fast": (10, 10, 0.001),
    "crowded": (100, 200, 1.0),
    "large": (250, 900, 1.0),
}
USUAL = {"small", "crowded"}
"""The sizes that are drawn in every run of the tests: there is hardly anything on an axis, or more than has room."""


@pytest.fixture(scope="module", params=long_unless(USUAL, SIZES))
def drawings(request: pytest.FixtureRequest) -> dict[str, Drawing]:
    run: Any = Large(*SIZES[request.param])
    return {figure.name: drawing for figure in FIGURES if (drawing := figure.draw(run)) is not None}


@pytest.fixture(scope="module")
def svgs(drawings: dict[str, Drawing]) -> dict[str, str]:
    return {name: to_svg(drawing.canvas) for name, drawing in drawings.items()}


def test_nothing_is_over_anything_else(drawings: dict[str, Drawing]) -> None:
    assert drawings.keys() == {figure.name for figure in FIGURES}
    assert {name: found for name, drawing in drawings.items() if (found := faults(drawing.canvas))} == {}


def test_a_figure_of_any_run_is_small(svgs: dict[str, str]) -> None:
    sizes = {name: len(svg) for name, svg in svgs.items()}
    assert max(sizes.values()) < 200_000 and sum(sizes.values()) < 800_000, sizes


def test_what_is_seen_is_a_sentence_with_numbers(drawings: dict[str, Drawing]) -> None:
    for drawing in drawings.values():
        assert re.fullmatch(r"[A-Z0-9].*\d.*\.", drawing.seen) and "nan" not in drawing.seen, drawing.seen
        assert not re.search(r"(?<![.\d])\d{5,}|e[+-]\d|\.\.|  ", drawing.seen), drawing.seen


@pytest.mark.filterwarnings("ignore:constrained_layout not applied")
def test_overlaps_are_found() -> None:
    canvas, (one, _) = axes_grid(2.0, columns=2)
    assert faults(canvas) == []
    one.text(0.5, 0.5, "upon")
    one.text(0.5, 0.5, "under")
    assert faults(canvas) == ["'upon' is over 'under'"]
    canvas, axes = plain_axes()
    axes.plot([0, 1], label="inside")
    axes.legend(loc="upper left")
    assert faults(canvas) == ["a legend is over axes"]
    canvas, axes = plain_axes()
    axes.plot([0, 1], label="too long to stand above the axes " * 3)
    legend_above(axes)
    assert "a legend leaves the figure" in faults(canvas)


def test_every_figure_says_what_it_means() -> None:
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    assert [chapter.name for chapter in CHAPTERS] == ["results", "overlay", "network"]
    for figure in FIGURES:
        assert figure.tables and figure.title
        for text in (figure.caption, figure.meaning):
            assert re.fullmatch(r"[A-Z].*\.", text), text


# ------------------------------------------------------------------------------------------------ as SVG


def test_an_element_has_only_colours_of_the_page_and_its_own_names(
    drawings: dict[str, Drawing], svgs: dict[str, str]
) -> None:
    elements = {name: to_element(svgs[name], name, each.seen) for name, each in drawings.items()}
    identifiers = []
    for name, element in elements.items():
        inside = "".join(re.findall(r"<[^>]*>", element))
        assert not re.search(r"#[0-9a-fA-F]{6}\b", inside)
        assert set(re.findall(r"var\(--([\w-]+)\)", element)) <= PALETTE.keys()
        own = re.findall(r' id="([^"]*)"', element)
        assert set(re.findall(r'(?:href="|url\()#([\w-]+)', element)) == set(own)
        assert all(each.startswith(f"{name}-") for each in own)
        identifiers += own
        root = ElementTree.fromstring(element)
        assert root.get("aria-label") == drawings[name].seen and root.get("role") == "img"
    assert len(set(identifiers)) == len(identifiers)


def test_a_file_has_the_light_colours_and_is_always_the_same() -> None:
    def draw() -> str:
        canvas, axes = plain_axes()
        axes.plot([0, 1], [0, 0.123456789], label="a <b> & c")
        axes.legend()
        return to_svg(canvas)

    assert draw() == draw()
    root = ElementTree.fromstring(draw())
    assert "var(" not in draw() and PALETTE["blue"][0] in draw()
    assert "a <b> & c" in ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    element = to_element(draw(), "x", '5 < 6 & "7"')
    assert ElementTree.fromstring(element).get("aria-label") == '5 < 6 & "7"'


def test_light_and_dark_colours_can_be_told_from_their_paper() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for scheme in range(2):
        paper = PALETTE["paper"][scheme]
        assert contrast(PALETTE["ink"][scheme], paper) > 7
        for name in PALETTE.keys() - {"paper", "grid", "edge", "shade", "land", "coast", "pale"}:
            assert contrast(PALETTE[name][scheme], paper) > 2.7, name
    assert len({light for light, _ in PALETTE.values()}) == len(PALETTE)
    assert palette_css().count("--blue: ") == 2


# ------------------------------------------------------------------------------------------------ curves


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=2000), st.integers(0, 100))
def test_a_cdf_is_never_off_by_more_than_a_step(values: list[float], missing: int) -> None:
    _, axes = plain_axes()
    plot_cdf(axes, [*values, np.nan], of=len(values) + missing)
    (line,) = axes.get_lines()
    x, shares = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert len(x) <= 400 and x[0] == min(values) and x[-1] == max(values)
    assert shares[-1] == pytest.approx(len(values) / (len(values) + missing))
    true = np.searchsorted(np.sort(values), x, side="right") / (len(values) + missing)
    drawn = shares[np.searchsorted(x, x, side="right") - 1]
    assert (drawn <= true + 1e-9).all()
    if len(values) <= 400:
        assert drawn == pytest.approx(true)
    step = max(1, len(values) / 399 + 1) / len(values)
    asked = np.linspace(min(values), max(values), 50)
    seen = shares[np.searchsorted(x, asked, side="right") - 1]
    assert np.abs(seen - np.searchsorted(np.sort(values), asked, side="right") / (len(values) + missing)).max() <= step


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0, 1e3)), max_size=300))
def test_every_point_has_one_that_stands_for_it(points: list[tuple[float, float]]) -> None:
    x, y = (np.array([point[axis] for point in points]) for axis in range(2))
    kept = distinct_points(x, y, cells=20)
    assert sorted(set(kept)) == list(kept)
    for axis in (x, y):
        if len(axis):
            width = max(np.ptp(axis), 1e-9) / 20
            near = np.abs(axis[:, None] - axis[kept][None, :]) <= width * 1.001
            assert near.any(axis=1).all()
    if len(points):
        cells = np.maximum(np.ptp(np.stack((x, y)), axis=1, keepdims=True), 1e-9) / 20
        apart = np.abs(np.stack((x, y))[:, :, None] - np.stack((x, y))[:, None, kept]) <= cells[:, :, None] * 1.001
        assert apart.all(axis=0).any(axis=1).all()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(-20, 40), unique=True, max_size=30).map(sorted))
def test_a_second_is_marked_if_and_only_if_it_is_alone(seconds: list[int]) -> None:
    _, axes = plain_axes()
    plot_seconds(axes, seconds, [float(second) for second in seconds])
    (line,) = axes.get_lines()
    x = np.asarray(line.get_xdata(), dtype=float)
    marked = [x[place] for place in line.get_markevery()]
    assert marked == [each for each in seconds if each - 1 not in seconds and each + 1 not in seconds]
    assert x[~np.isnan(x)].tolist() == seconds
    joined = [(a, b) for a, b in pairwise(x) if not np.isnan(a + b)]
    assert joined == [(each, each + 1) for each in seconds if each + 1 in seconds]


def test_axes_are_labelled_with_plain_and_whole_numbers() -> None:
    canvas, (left, right) = axes_grid(2.0, columns=2)
    left.plot([1e-5, 1e7], [1, 1])
    log_scale(left, "x", decades=13)
    right.plot([0, 3], [0, 0.4])
    whole_numbers(right.xaxis)
    canvas.draw_without_rendering()
    shown = {label.get_text() for label in left.get_xticklabels()}
    assert {"0.00001", "0.1", "1", "1,000", "10,000,000"} <= shown, shown
    assert {label.get_text() for label in right.get_xticklabels()} >= {"0", "1", "2", "3"}
    assert all(float(tick).is_integer() for tick in right.get_xticks())


def test_a_small_map_has_no_overlaps_either() -> None:
    run: Any = Large(60, 3, 1.0)
    drawing = draw_world(run, WIDTH)
    assert drawing is not None and drawing.canvas.get_figwidth() == WIDTH
    assert faults(drawing.canvas) == []


def test_of_many_links_every_nth_is_on_the_map() -> None:
    run: Any = Large(60, 3, 1.0)
    drawing = draw_world(run)
    assert drawing is not None
    (links,) = [each for each in drawing.canvas.axes[0].collections if hasattr(each, "get_segments")]
    assert 300 < len(links.get_segments()) <= 400 and "1,770 links" in drawing.seen


@pytest.mark.parametrize(
    ("share", "text"),
    [(1, "100 %"), (0.99999, "more than 99.9 %"), (0, "0 %"), (1e-6, "less than 0.1 %"), (0.357, "35.7 %")],
)
def test_a_share_is_not_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7.4, "7.4"),
        (98.63, "98.6"),
        (183.8, "184"),
        (12345.6, "12,346"),
        (0.06788, "0.0679"),
        (0.00001, "0.00001"),
    ],
)
def test_a_number_has_three_digits(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("groups", [1, 3, 10])
def test_groups_with_long_labels_are_compared_without_overlaps(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Large(20, 10, 1.0)
    monkeypatch.setattr(comparison, "Run", lambda path: run)
    labels = [
        f"gossipsub, workload.publish_rate_per_s={group}, gossipsub.degree=6, verdict.lateness=1"
        for group in range(groups)
    ]
    shown: Any = [SimpleNamespace(label=label, runs=[SimpleNamespace(path="")]) for label in labels]
    for draw in (comparison.delay_figure, comparison.degree_figure):
        drawing = draw(shown)
        assert faults(drawing.canvas) == []
        assert all(label in drawing.seen for label in labels)
        lines = drawing.canvas.axes[0].get_lines()
        assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == groups
