"""The rules of checks: their registry, their page, and what makes a judgement."""

import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from msgspec import structs

from metrics.checks import RULES, check_run
from metrics.checks.consistency import BROKEN, CHURN_MARGIN, IDLE, SETTLE, TOLD
from metrics.checks.evidence import Evidence
from metrics.checks.rule import Absent, CheckRule, Judgement, Limit, at_most, few_late, share_at_most
from metrics.recorded.first_packets import RULES as COMPARED
from metrics.recorded.stalls import Late
from metrics.rundir import FAILED, INVALID, NOT_APPLICABLE, NOT_JUDGED, PASSED, SUSPECT, Scope
from tests.fabricate import SECOND
from tests.sound_evidence import MS, SOUND

GOLDEN = Path(__file__).parents[1] / "golden" / "fabricated-summary.json"
PAGE = Path(__file__).parents[2] / "docs" / "verdict.md"
NAMES = [rule.name for rule in RULES]


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES) > 40


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_says_what_it_needs_and_why_it_is_made(rule: Any) -> None:
    parts, types = get_type_hints(Evidence), get_type_hints(rule.judge)
    assert rule.needs
    for name in rule.needs:
        kind = types[name]
        assert kind == parts[name] or kind in get_args(parts[name]), f"the part {name} is no {kind}"
    assert rule.severity in (INVALID, SUSPECT)
    fails_if, why, *late = rule.texts
    assert fails_if.startswith("Fails if") and fails_if.endswith(".") and why.endswith(".")
    assert [text.startswith("Late: ") and "; " in text for text in late] == [True] * bool(rule.things)
    assert all(str(limit) in " ".join(rule.texts) for limit in rule.limits)
    assert not rule.grave or rule.severity == SUSPECT


def test_checks_come_in_the_order_of_the_golden_summary() -> None:
    golden = json.loads(GOLDEN.read_text())["checks"]
    assert [name for name in NAMES if name in golden] == golden
    assert golden == NAMES


@pytest.mark.parametrize(("due", "outcome"), [(False, NOT_APPLICABLE), (True, NOT_JUDGED)])
def test_a_check_without_a_part_that_it_needs_says_why(due: bool, outcome: str) -> None:
    optional = [name for name, kind in get_type_hints(Evidence).items() if Absent in get_args(kind)]
    assert len(optional) > 10
    for part in optional:
        without = check_run(structs.replace(SOUND, **{part: Absent("nothing of the kind", due)}))
        found = {check.name: check.detail for check in without if check.outcome == outcome}
        expected = dict.fromkeys((rule.name for rule in RULES if part in rule.needs), "nothing of the kind")
        aside = {"churn_executed": found["churn_executed"]} if not due else {}
        assert found == expected | aside, part


def test_a_check_whose_parts_are_absent_by_design_is_not_applicable_whatever_else_is_missing() -> None:
    rule = CheckRule("both", "certificate", INVALID, lambda order, frames: Absent("never"))
    missing = structs.replace(SOUND, order=Absent("lost", due=True), frames=Absent("by design"))
    found = rule.check(missing)
    assert (found.outcome, found.detail) == (NOT_APPLICABLE, "by design")


def test_every_part_of_the_scope_has_checks() -> None:
    assert {rule.scope for rule in RULES} == set(Scope.__struct_fields__)


def test_the_page_has_every_rule() -> None:
    found = re.findall(r"^\| (`[^|]+`) \| .* \| (?:invalid|suspect)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    rows = [name.strip("`") for names in found for name in names.split(", ")]
    for name in NAMES:
        assert [row for row in rows if re.fullmatch(row.replace("*", "[a-z]+"), name)] != [], name
    assert all(any(re.fullmatch(row.replace("*", "[a-z]+"), name) for name in NAMES) for row in rows)


def test_the_page_has_the_limits_of_first_packets() -> None:
    page = PAGE.read_text(encoding="utf-8")
    pairs, hosts = COMPARED["pairs"], COMPARED["hosts"]
    for rule, slots in ((pairs, "all"), (hosts, "first packets of a host,")):
        share = Limit(rule.share, "ratio")
        assert f"| {slots} with a control within {rule.apart_ms:g} ms | {share} | {rule.p_value:g} |" in page
    assert f"({pairs.fewest}; {hosts.fewest} of hosts)" in page


def test_limits_of_evidence_have_their_values() -> None:
    """No judge compares them: they bound what the tables count."""
    assert (IDLE.ns, SETTLE.ns, BROKEN.ns, TOLD.ns) == (2 * SECOND, 100 * MS, 60 * SECOND, 2 * SECOND)
    assert CHURN_MARGIN.ns == 100 * MS


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(0.001, "ratio"), "0.1 %"),
        (Limit(0.95, "ratio"), "95 %"),
        (Limit(10.0, "ms"), "10 ms"),
        (Limit(1, ""), "1"),
    ],
)
def test_a_limit_has_its_unit_as_text(limit: Limit, text: str) -> None:
    assert str(limit) == text


def test_a_value_at_its_limit_passes() -> None:
    limit = Limit(3.0, "ms")
    assert [at_most(limit, value, 9, "").failed for value in (2.9, 3.0, 3.1)] == [0, 0, 1]
    assert [few_late(limit, 9.0, 9, "", Late(late, 0), 2).failed for late in (2, 3)] == [0, 1]
    assert [share_at_most(limit, [value] * 4, 0).failed for value in (3.0, 3.1)] == [0, 4]
    assert [share_at_most(limit, [4.0] * late + [0.0] * (10 - late), 0.2).failed for late in (2, 3)] == [0, 3]
    assert share_at_most(limit, [], 0).worst == 0.0


@pytest.mark.parametrize(
    ("tested", "failed", "material", "floor", "outcome"),
    [
        (0, 0, None, 0.5, NOT_JUDGED),
        (1, 0, None, 0.5, PASSED),
        (0, 0, 10, 0.0, NOT_JUDGED),
        (5, 0, 10, 0.5, PASSED),
        (4, 0, 10, 0.5, NOT_JUDGED),
        (9, 0, 10, 0.9, PASSED),
        (8, 0, 10, 0.9, NOT_JUDGED),
        (0, 1, 10, 0.9, FAILED),
        (1, 1, 10, 0.9, FAILED),
    ],
)
def test_a_check_that_tests_less_than_its_floor_is_not_judged(
    tested: int, failed: int, material: int | None, floor: float, outcome: str
) -> None:
    judged = Judgement(tested, failed, failed, Limit(0, ""), "a detail", material=material)
    found = CheckRule("some", "certificate", INVALID, lambda: judged, floor=floor).check(None)
    assert (found.outcome, found.tested) == (outcome, tested)
    assert ("could be tested" in found.detail) is (outcome == NOT_JUDGED)
