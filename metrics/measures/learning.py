"""Measures of protocols that learn their neighbours, by epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metrics.measures.measure import Family, Measure, Values, mean

QUANTILES = tuple(place / 50 for place in range(51))
"""The shares of nodes at which the distribution of scores is noted."""

SCORES: Family[Values] = Family(
    "scores (epochs)",
    (
        Measure("score_mean", "", "score of the neighbours that a node keeps at an epoch's end, mean", mean),
        Measure(
            "score_quantiles",
            "",
            "scores of all nodes in order, at each 50th of the nodes",
            lambda scores: ((share, float(np.quantile(scores, share))) for share in QUANTILES),
            "quantile",
        ),
    ),
    "messages",
)
"""Of the scores of some nodes (at least one). Source: Topiary section V-A, performance measures 3 and 4."""

LEARNING: Family[Sequence[Mapping[str, Any]]] = Family(
    "epochs",
    (
        Measure("epochs", "epochs", "whole epochs", len),
        Measure(
            "epoch_first_delay_ms_mean",
            "ms",
            "propagation delay in the first epoch, in which neighbours are random, mean",
            lambda epochs: epochs[0]["latency_ms_mean"],
        ),
        Measure(
            "epoch_last_delay_ms_mean",
            "ms",
            "propagation delay in the last whole epoch, mean",
            lambda epochs: epochs[-1]["latency_ms_mean"],
        ),
        Measure(
            "epoch_last_delivery_ratio",
            "ratio",
            "delivery ratio of the last whole epoch",
            lambda epochs: epochs[-1]["delivery_ratio"],
        ),
        Measure(
            "learning_delay_reduction_ratio",
            "ratio",
            "reduction of the mean delay from the first epoch to the last whole one",
            lambda epochs: 1 - epochs[-1]["latency_ms_mean"] / epochs[0]["latency_ms_mean"],
        ),
    ),
)
"""Of the rows of the table ``epochs`` with a score and a delivery, at least two."""
