"""The checks of a run: rows of the table ``checks``, which the verdict joins (``metrics.verdict``).

A *rule* (``rule.CheckRule``) says for one check when it fails, what that makes of the run, and why it is made. Its
*judge* is a function from parts of the *evidence* (``evidence.Evidence``) to a ``Judgement``. ``registry.RULES`` has
all rules in the order of the table, ``registry.check_run`` applies them, ``page`` makes the tables of docs/verdict.md.

To add a check:

1. Have the evidence. If no part of ``Evidence`` says what the check needs, add a field to one, or a new part: a struct
   that documents its fields, in ``documents`` with its reader, or in ``evidence`` if it is from the tables;
   ``metrics.tables.evidence.gather`` fills it, with None where a run has nothing of the kind.
2. Write the judge in the module of its family, and its limit as a ``Limit`` above it, the only place with the number::

       SEND_P50 = Limit(5.0, "ms")

       @rule("the median of `d_sndbuf` exceeds {0}", SUSPECT, "overload", limits=(SEND_P50,))
       def send_delay(hosts: HostDelays, frames: FrameCounts) -> Judgement:
           '''Its tail belongs to TCP (a full window waits a round trip), so the median is judged.'''
           detail = f"frames left their host after the peer's write: median {hosts.send_ms_p50:.3g} ms"
           return at_most(SEND_P50, hosts.send_ms_p50, frames.sent, detail)

   The function's name is the check's, its docstring the reason in docs/verdict.md, and its parameters are the parts of
   the evidence that it needs: without one of them the check is left out. ``none_of`` (nothing may fail), ``at_most``
   (one value and its limit) and ``each_at_most`` (many values) make the judgement. Where a stall of the host may be the
   cause, give ``rule`` the ``Samples`` and the judgement the late ones: no stall changes a verdict.
3. Add the rule to ``registry.RULES``, at its place in the table.
4. Run ``python -m metrics.checks.page``, which writes its row into docs/verdict.md.
5. Test the value just within and just beyond the limit: a line in ``CASES`` of tests/unit/test_check_rules.py, with the
   number written out. The golden tests/golden/fabricated-summary.json has the names of the checks of a sound run.
"""

from metrics.checks.evidence import Evidence
from metrics.checks.registry import RULES, check_run

__all__ = ["RULES", "Evidence", "check_run"]
