"""Makes the report's table of expressions: the sizes of their groups, and the nodes that their messages reached."""

from typing import Any

import pandas as pd

from metrics.report.run import Run

MOST_EXPRESSIONS = 20
ALL = "all expressions"


def expressions_by_use(run: Run) -> list[dict[str, Any]]:
    """Return all expressions together, then those with the most messages, and of several those with the largest groups.

    Returns:
        Rows with ``expression``, the number of ``messages``, the ``smallest`` and ``largest`` group; ``reached``: the
        share of the members; ``relays`` and ``false_positives`` per message; ``measured`` and ``predicted``: false
        positives per node that was up and not a member; None = there is nothing to divide by, or no prediction. Empty
        for a run without expressions.
    """
    groups = run.table("groups")
    if groups is None or groups.empty:
        return []
    sizes = groups.groupby("expression").agg(messages=("members", "size"), members=("members", "max")).reset_index()
    order = sizes.sort_values(["messages", "members", "expression"], ascending=[False, False, True])
    chosen = order["expression"].head(MOST_EXPRESSIONS)
    rows = [_sum_up(ALL, groups)] if len(order) > 1 else []
    return rows + [_sum_up(text, groups[groups["expression"] == text]) for text in chosen]


def sharing_of_links(run: Run) -> dict[str, Any] | None:
    """Count the expressions that share a link between two nodes.

    Returns:
        ``links``: the number of links that carried copies; ``mean`` and ``most`` expressions of one link; ``wire``: the
        mean in the captures, None without captures. None for a run without expressions, or without copies.
    """
    links = run.table("group_links")
    if links is None or links.empty:
        return None
    seen = links["expressions_on_wire"].dropna()
    return {
        "links": len(links),
        "mean": float(links["expressions"].mean()),
        "most": int(links["expressions"].max()),
        "wire": float(seen.sum() / (seen > 0).sum()) if seen.any() else None,
    }


def _sum_up(expression: str, groups: pd.DataFrame) -> dict[str, Any]:
    others = int(groups["others"].sum())
    return {
        "expression": expression,
        "messages": len(groups),
        "smallest": int(groups["members"].min()),
        "largest": int(groups["members"].max()),
        "reached": _share(groups["reached"].sum(), int(groups["members"].sum())),
        "relays": _share(groups["relays"].sum(), len(groups)),
        "false_positives": _share(groups["false_positives"].sum(), len(groups)),
        "measured": _share(groups["false_positives"].sum(), others),
        "predicted": _share(groups["false_positives_predicted"].sum(min_count=1), others),
    }


def _share(part: float, whole: int) -> float | None:
    return None if not whole or pd.isna(part) else float(part / whole)
