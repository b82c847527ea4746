"""Measures of protocols that learn their neighbours, by epochs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metrics.measures.measure import Family, Values

QUANTILES = tuple(place / 50 for place in range(51))
"""The shares of nodes at which the distribution of scores is recorded."""

_DELAY = "latency_ms_mean"

SCORES = Family[Values]("scores (epochs)", "epochs")
"""Measures of the scores of some nodes (at least one). Source: Topiary section V-A, performance measures 3 and 4."""
SCORES.add_statistics("score", "", "score of the neighbours that a node keeps at an epoch's end", lambda it: it, "mean")
SCORES.add(
    "score_quantiles",
    "",
    "scores of all nodes in order, at each 50th of the nodes",
    lambda it: ((share, float(np.quantile(it, share))) for share in QUANTILES),
    "quantile",
)

LEARNING = Family[Sequence[Mapping[str, Any]]]("epochs")
"""Measures of the rows of the table ``epochs`` with a score and a delivery, at least two."""
LEARNING.add("epochs", "epochs", "whole epochs", len)
LEARNING.add("epoch_first_delay_ms_mean", "ms", "delay in the first epoch, mean", lambda it: it[0][_DELAY])
LEARNING.add("epoch_last_delay_ms_mean", "ms", "delay in the last whole epoch, mean", lambda it: it[-1][_DELAY])
LEARNING.add(
    "epoch_last_delivery_ratio", "ratio", "delivery ratio of the last whole epoch", lambda it: it[-1]["delivery_ratio"]
)
LEARNING.add(
    "learning_delay_reduction_ratio",
    "ratio",
    "reduction of the mean delay from the first epoch to the last whole one",
    lambda it: 1 - it[-1][_DELAY] / it[0][_DELAY],
)
