"""Runs side by side: their headline numbers, and their delay distributions in one figure."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from metrics.report.canvas import plain_axes
from metrics.report.page import template
from metrics.report.run import Run


def headline_rows(runs: list[Run]) -> list[tuple[str, list[Any]]]:
    """The headline numbers that any of the runs has, in the first run's order: (name, a value per run)."""
    names = list(dict.fromkeys(name for run in runs for name in run.summary.headline))
    rows = [(name, [run.summary.headline.get(name) for run in runs]) for name in names]
    return [(name, values) for name, values in rows if any(value is not None for value in values)]


def differing_settings(runs: list[Run]) -> list[tuple[str, list[Any]]]:
    """The experiment settings (dotted path) in which the runs differ: (path, a value per run)."""
    settings = [dict(_flatten("", run.experiment)) for run in runs]
    paths = list(dict.fromkeys(path for found in settings for path in found))
    rows = [(path, [found.get(path) for found in settings]) for path in paths]
    return [(path, values) for path, values in rows if path != "description" and any(v != values[0] for v in values)]


def _flatten(prefix: str, value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        return [(prefix, value)]
    return [pair for key, inner in value.items() for pair in _flatten(f"{prefix}.{key}" if prefix else key, inner)]


def labels(runs: list[Run]) -> list[str]:
    """A short name for each run: its protocol where that tells them apart, its folder otherwise."""
    protocols = [str(run.experiment["protocol"]) for run in runs]
    if len(set(protocols)) == len(runs):
        return protocols
    return [f"{run.plan.name}/{run.path.resolve().name}" for run in runs]


def delay_figure(runs: list[Run]) -> Canvas:
    """The propagation delay's distribution of every run; undelivered pairs keep a curve below 1."""
    canvas, axes = plain_axes(7.5, 4.0)
    for run, label in zip(runs, labels(runs), strict=True):
        deliveries = run.honest("deliveries")
        if deliveries is None or deliveries.empty:
            continue
        latency = np.sort(deliveries["latency_ms"].dropna().to_numpy())
        share = np.arange(1, len(latency) + 1) / len(deliveries)
        axes.step(latency, share, where="post", label=label)
    axes.set(xlabel="delay from publication (ms)", ylabel="share of expected deliveries", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    axes.legend(loc="lower right")
    return canvas


def write_comparison(runs: list[Run], page: Path) -> None:
    """Write the comparison as one HTML page that opens without a network."""
    image = io.BytesIO()
    delay_figure(runs).savefig(image, dpi=144, format="png")
    text = template("comparison.html.j2").render(
        labels=labels(runs),
        runs=runs,
        settings=differing_settings(runs),
        rows=headline_rows(runs),
        png=base64.b64encode(image.getvalue()).decode(),
    )
    page.write_text(text, encoding="utf-8")
