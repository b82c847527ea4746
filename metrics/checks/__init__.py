"""The checks of a run: rows of the table ``checks``, which the verdict joins (``metrics.summary``).

A rule (``rule.CheckRule``) says for one check when it fails, what that makes of the run, and why it is made; its judge
is a function from parts of the evidence (``evidence.Evidence``) to a ``rule.Judgement``. CONTRIBUTING.md says how to
add one.
"""

from metrics.checks import accounts, consistency, host_captures, machine, measured, network, plane
from metrics.checks.rule import CheckRule
from metrics.rundir import Check

__all__ = ["RULES", "check_run"]

RULES: tuple[CheckRule, ...] = (
    *consistency.RULES,
    *accounts.RULES,
    *network.RULES,
    *measured.RULES,
    *plane.RULES,
    *host_captures.RULES,
    *machine.RULES,
)
"""Every rule, in the order of the ``checks`` table."""


def check_run(evidence: object) -> list[Check]:
    """Return the rows of the ``checks`` table, one for each rule."""
    return [rule.check(evidence) for rule in RULES]
