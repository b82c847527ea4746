"""The report's table of expressions: how large their groups were, and whom their messages reached."""

from typing import Any

import pandas as pd

from metrics.report.run import Run

MOST_EXPRESSIONS = 20
ALL = "all expressions"


def expressions_by_use(run: Run) -> list[dict[str, Any]]:
    """All expressions together, and those with the most messages, of equal ones those with the largest groups first.

    Returns:
        Rows with ``expression``, how many ``messages``, the ``smallest`` and ``largest`` group; ``reached``: the share
        of the members; per message ``relays`` and ``false_positives``; ``measured`` and ``predicted``: false positives
        per node that was up and no member; None = there is nothing to divide by, or no prediction. Empty for a run
        without expressions.
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
    """How many expressions share a link between two nodes.

    Returns:
        ``links``: those that carried copies; ``mean`` and ``most`` expressions of one; ``wire``: the mean by what the
        captures have seen, None without captures. None for a run without expressions, or without copies.
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
