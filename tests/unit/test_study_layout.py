"""The figures of docs/reproduction, drawn again from their records: no text over another, no legend over a curve."""

from pathlib import Path

import numpy as np
import pytest

from harness.studies.figures import draw_figure
from harness.studies.loader import load_study
from harness.studies.record import read_record
from metrics.report.canvas import plain_axes
from tests.examples import long_unless
from tests.figure_layout import covered_curves, faults

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "docs" / "reproduction").glob("*/*.json"))
USUAL = {next(record for record in RECORDS if record.parent == paper) for paper in {each.parent for each in RECORDS}}
"""One record per paper: its figures are drawn in every run of the tests."""

WITHIN = "a legend is over axes"
"""Legends of studies stand within the axes, where there is room."""


@pytest.mark.parametrize("record", long_unless(USUAL, RECORDS), ids=lambda record: record.stem)
def test_nothing_is_over_anything_else(record: Path) -> None:
    study = load_study(ROOT / "playbooks" / "studies" / f"{record.stem}.toml")
    results = read_record(record, study, partial=True).results
    found = {}
    for figure in study.figure:
        canvas = draw_figure(figure, results)
        found[figure.name] = [fault for fault in faults(canvas) if fault != WITHIN] + covered_curves(canvas)
    assert {name: each for name, each in found.items() if each} == {}


def test_there_are_records_with_figures() -> None:
    assert len(RECORDS) > 20


def test_a_legend_over_a_curve_is_found() -> None:
    canvas, axes = plain_axes()
    axes.plot([0, 1], [0, 1], label="rises")
    legend = axes.legend(loc="upper left")
    assert covered_curves(canvas) == []
    legend.set_loc("upper right")
    assert covered_curves(canvas) == ["the legend is over 'rises'"]


COVERED = {
    "bar": lambda axes: axes.bar([0.9], [1.0], width=0.3),
    "steps": lambda axes: axes.step([0, 0.9, 1], [0, 0.95, 0.95], where="post"),
    "error bar": lambda axes: axes.errorbar([0.9], [0.5], [0.5], fmt="none"),
    "marks": lambda axes: axes.plot(np.linspace(0.8, 1, 60), np.full(60, 0.95), "o"),
    "band": lambda axes: axes.fill_between([0.7, 1], [0.5, 0.5], [1, 1]),
}


@pytest.mark.parametrize("name", COVERED)
def test_a_legend_over_anything_drawn_is_found(name: str) -> None:
    for at, found in (("upper right", True), ("lower left", False)):
        canvas, axes = plain_axes()
        axes.plot([0.4, 0.6], [0.5, 0.5], label="a label")
        COVERED[name](axes)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.legend(loc=at)
        assert bool(covered_curves(canvas)) is found, at
