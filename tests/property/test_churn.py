"""Churn: sessions alternate and are stationary, and what the schedule says is possible at every instant."""

import gzip
import math
import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.sections.workload import ChurnSpec, InterestsSpec, ScriptedAction, WorkloadSpec
from harness.workload.churn import Sessions, Span, draw_sessions, mean_off_s
from harness.workload.workload import Workload, draw_workload
from peer.core.contract import message_id
from peer.core.schedule import Crash, Join, Leave, Publish, Subscribe, Unsubscribe, Vanish
from tests.examples import examples

HERE = Path()
SECOND = 1_000_000_000
SPAN = Span(-5 * SECOND, 60 * SECOND)
KINDS = {
    "join": Join,
    "leave": Leave,
    "crash": Crash,
    "vanish": Vanish,
    "subscribe": Subscribe,
    "unsubscribe": Unsubscribe,
}
seeds = st.integers(0, 2**63 - 1)
workloads = st.builds(
    WorkloadSpec,
    topics=st.integers(3, 12),
    publish_rate_per_s=st.floats(1, 30),
    topics_per_message=st.integers(1, 2),
    warmup_s=st.floats(0, 5),
    duration_s=st.floats(1, 20),
    cooldown_s=st.floats(0, 5),
)
churns = st.builds(
    ChurnSpec,
    kind=st.sampled_from(["none", "exponential"]),
    on_s=st.floats(0.5, 40),
    off_s=st.none() | st.floats(0.5, 40),
    crash_ratio=st.floats(0, 1),
    silent_ratio=st.floats(0, 1),
    new_interests=st.booleans(),
    flash_ratio=st.floats(0, 1),
    flash_at_s=st.floats(0, 0.5),
    flash_span_s=st.floats(0, 0.4),
)


def check_sessions(sessions: Sessions, span: Span) -> None:
    for own in sessions:
        instants = [instant for session in own for instant in session[:2]]
        assert instants == sorted(set(instants)), "up and down alternate"
        assert all(span.start_ns <= instant <= span.end_ns for instant in instants)


@given(churns, st.integers(1, 30), seeds)
def test_sessions_alternate_within_the_span_and_repeat(spec: ChurnSpec, nodes: int, seed: int) -> None:
    sessions = draw_sessions(spec, nodes, SPAN, seed, HERE)
    check_sessions(sessions, SPAN)
    if not spec.flash_ratio:
        assert draw_sessions(spec, nodes + 7, SPAN, seed, HERE)[:nodes] == sessions
    if spec.kind == "none" and not spec.flash_ratio:
        assert sessions == (((*SPAN, False, False),),) * nodes


@given(churns, st.integers(1, 30), seeds)
def test_a_flash_crowd_joins_in_its_span_and_stays_and_the_others_do_not_change(
    spec: ChurnSpec, nodes: int, seed: int
) -> None:
    sessions = draw_sessions(spec, nodes, SPAN, seed, HERE)
    calm = draw_sessions(msgspec.structs.replace(spec, flash_ratio=0.0), nodes, SPAN, seed, HERE)
    first_ns = round(spec.flash_at_s * 1e9)
    last_ns = first_ns + round(spec.flash_span_s * 1e9)
    crowd = [
        own
        for own in sessions
        if len(own) == 1 and own[0][1:] == (SPAN.end_ns, False, False) and first_ns <= own[0].from_ns <= last_ns
    ]
    changed = sum(own != before for own, before in zip(sessions, calm, strict=True))
    assert changed <= round(spec.flash_ratio * nodes) <= len(crowd)


def test_a_flash_crowd_joins_at_different_instants() -> None:
    spec = ChurnSpec(flash_ratio=0.5, flash_at_s=3, flash_span_s=10)
    joins = [own[0].from_ns for own in draw_sessions(spec, 2000, SPAN, 1, HERE) if own[0].from_ns > SPAN.start_ns]
    assert len(joins) == 1000
    for share in (0.25, 0.5, 0.75):
        assert sum(at_ns < (3 + 10 * share) * 1e9 for at_ns in joins) / 1000 == pytest.approx(share, abs=0.06)


@given(churns, st.integers(1, 10), seeds)
def test_only_crashes_are_silent_and_silence_changes_nothing_else(spec: ChurnSpec, nodes: int, seed: int) -> None:
    sessions = draw_sessions(spec, nodes, SPAN, seed, HERE)
    heard = draw_sessions(msgspec.structs.replace(spec, silent_ratio=0.0), nodes, SPAN, seed, HERE)
    assert [[s[:3] for s in own] for own in sessions] == [[s[:3] for s in own] for own in heard]
    assert not any(s.silent for own in heard for s in own)
    assert not any(s.silent and not s.crashes for own in sessions for s in own)


def test_crashes_are_silent_in_their_share() -> None:
    spec = ChurnSpec(kind="exponential", on_s=9, crash_ratio=0.5, silent_ratio=0.25)
    crashes = [s.silent for own in draw_sessions(spec, 900, SPAN, 1, HERE) for s in own if s.crashes]
    assert sum(crashes) / len(crashes) == pytest.approx(0.25, abs=5 * math.sqrt(0.19 / len(crashes)))


def share_up(sessions: Sessions, at_ns: int) -> float:
    return sum(any(s.from_ns <= at_ns < s.to_ns for s in own) for own in sessions) / len(sessions)


@given(st.floats(10, 500), st.none() | st.floats(10, 500), seeds)
@settings(max_examples=examples(15), deadline=None)
def test_exponential_churn_is_stationary_from_the_start(on_s: float, off_s: float | None, seed: int) -> None:
    spec, nodes = ChurnSpec(kind="exponential", on_s=on_s, off_s=off_s), 2000
    expected = on_s / (on_s + mean_off_s(spec))
    assert off_s is not None or expected == pytest.approx(0.8)
    span = Span(-100 * SECOND, 1000 * SECOND)
    sessions = draw_sessions(spec, nodes, span, seed, HERE)
    for at_ns in (span.start_ns, 0, 333 * SECOND, span.end_ns - 1):
        assert abs(share_up(sessions, at_ns) - expected) <= 6 * math.sqrt(expected * (1 - expected) / nodes)


def test_times_up_and_down_have_their_means_and_departures_their_share_of_crashes() -> None:
    spec = ChurnSpec(kind="exponential", on_s=20, crash_ratio=0.3)
    span = Span(0, 4000 * SECOND)
    sessions = draw_sessions(spec, 100, span, 1, HERE)
    whole = [s for own in sessions for s in own if span.start_ns < s.from_ns and s.to_ns < span.end_ns]
    gaps = [after.from_ns - before.to_ns for own in sessions for before, after in pairwise(own)]
    for times, mean_s in (([s.to_ns - s.from_ns for s in whole], 20), (gaps, 5)):
        assert sum(times) / len(times) / 1e9 == pytest.approx(mean_s, rel=0.04)
        assert sum(t > mean_s * SECOND for t in times) / len(times) == pytest.approx(math.exp(-1), abs=0.015)
    crashed = sum(s.crashes for s in whole) / len(whole)
    assert abs(crashed - 0.3) <= 5 * math.sqrt(0.21 / len(whole))


def test_the_share_of_crashes_leaves_the_times_alone() -> None:
    few, many = (
        draw_sessions(ChurnSpec(kind="exponential", on_s=9, crash_ratio=r), 9, SPAN, 1, HERE) for r in (0, 0.9)
    )
    assert [[s[:2] for s in own] for own in few] == [[s[:2] for s in own] for own in many]


def check_possible(drawn: Workload, experiment: Experiment) -> None:
    """Replay the schedule: nothing is asked of a node that is down, or joins one that is up."""
    up, topics = list(drawn.up), [set(own) for own in drawn.interests]
    workload = experiment.workload
    last_ns = -(2**62)
    published = 0
    for action in drawn.schedule:
        assert action.at_ns >= last_ns
        last_ns = action.at_ns
        assert -workload.warmup_s * 1e9 - 1 <= action.at_ns < (workload.duration_s + workload.cooldown_s) * 1e9 + 1
        assert up[action.node] != isinstance(action, Join)
        own = topics[action.node]
        if not isinstance(action, Leave | Crash | Vanish):
            assert list(action.topics) == sorted(set(action.topics))
        match action:
            case Publish():
                assert own & set(action.topics), "its publisher subscribes to one of its topics at that instant"
                living = set().union(*(topics[node] for node in range(len(up)) if up[node]))
                assert set(action.topics) <= living
                assert action.message_id == message_id(action.node, published)
                published += 1
            case Join():
                up[action.node], topics[action.node] = True, set(action.topics)
            case Leave() | Crash() | Vanish():
                up[action.node], topics[action.node] = False, set()
            case Subscribe():
                assert not own & set(action.topics)
                own |= set(action.topics)
            case Unsubscribe():
                assert own >= set(action.topics)
                own -= set(action.topics)


@given(workloads, churns, st.floats(0.3, 1), st.integers(6, 25), seeds)
@settings(max_examples=examples(80), deadline=None)
def test_schedules_under_churn_are_possible(
    workload: WorkloadSpec, churn: ChurnSpec, ratio: float, nodes: int, seed: int
) -> None:
    experiment = Experiment("x", seed=seed, workload=workload, churn=churn, interests=InterestsSpec(ratio=ratio))
    try:
        drawn = draw_workload(experiment, nodes, HERE)
    except ExperimentError as error:
        assert "a message needs" in error.problem
        return
    assert not any(topics for topics, up in zip(drawn.interests, drawn.up, strict=True) if not up)
    check_possible(drawn, experiment)
    assert draw_workload(experiment, nodes, HERE) == drawn
    if not churn.new_interests:
        seen: dict[int, set] = {}
        for node, topics in [
            *enumerate(drawn.interests),
            *((a.node, a.topics) for a in drawn.schedule if isinstance(a, Join)),
        ]:
            seen.setdefault(node, set()).add(topics)
        assert all(len(found - {()}) <= 1 for found in seen.values())


@st.composite
def scripts(draw: st.DrawFn) -> tuple[ScriptedAction, ...]:
    """Any entries, possible or not."""
    kinds = st.sampled_from(sorted(KINDS))
    entry = st.builds(ScriptedAction, at_s=st.floats(-6, 12), node=st.integers(0, 5), action=kinds, topics=st.just(()))
    topics = st.lists(st.integers(0, 5), max_size=2).map(tuple)
    return tuple(
        draw(
            st.lists(
                st.one_of(
                    entry,
                    st.builds(
                        ScriptedAction, at_s=st.floats(0, 9), node=st.integers(0, 4), action=kinds, topics=topics
                    ),
                ),
                max_size=6,
            )
        )
    )


@given(scripts(), seeds)
@settings(max_examples=examples(200), deadline=None)
def test_a_script_is_possible_or_refused_with_its_place(script: tuple[ScriptedAction, ...], seed: int) -> None:
    workload = WorkloadSpec(topics=5, duration_s=10, cooldown_s=1)
    churn = ChurnSpec(kind="script", script=script)
    experiment = Experiment("x", seed=seed, workload=workload, churn=churn, interests=InterestsSpec(ratio=0.5))
    try:
        drawn = draw_workload(experiment, 5, HERE)
    except ExperimentError as error:
        assert error.path.startswith(("$.churn.script[", "$.interests"))
        return
    check_possible(drawn, experiment)
    changes = [(action.node, type(action)) for action in drawn.schedule if not isinstance(action, Publish)]
    asked = sorted(script, key=lambda action: action.at_s)
    assert changes == [(action.node, KINDS[action.action]) for action in asked]


def scripted(*entries: tuple | ScriptedAction) -> Workload:
    script = tuple(entry if isinstance(entry, ScriptedAction) else ScriptedAction(*entry) for entry in entries)
    experiment = Experiment(
        "x",
        churn=ChurnSpec(kind="script", script=script),
        interests=InterestsSpec(ratio=1),
        workload=WorkloadSpec(topics=3),
    )
    return draw_workload(experiment, 4, HERE)


def test_a_script_says_who_is_down_at_the_start_and_what_a_join_takes() -> None:
    drawn = scripted((3, 1, "join", (2,)), (-1, 2, "crash"), (4.5, 1, "subscribe", (0,)), (5, 2, "join"))
    assert drawn.up == (True, False, True, True)
    assert drawn.interests == ((0, 1, 2), (), (0, 1, 2), (0, 1, 2))
    changes = [action for action in drawn.schedule if not isinstance(action, Publish)]
    assert changes == [
        Crash(-1 * SECOND, 2),
        Join(3 * SECOND, 1, (2,)),
        Subscribe(round(4.5 * SECOND), 1, (0,)),
        Join(5 * SECOND, 2, (0, 1, 2)),
    ]


def test_an_entry_of_a_script_may_be_for_several_nodes() -> None:
    drawn = scripted(ScriptedAction(3, 2, "vanish", count=2), ScriptedAction(2, 0, "join", (1,), count=2))
    assert drawn.up == (False, False, True, True)
    changes = [action for action in drawn.schedule if not isinstance(action, Publish)]
    joins = [Join(2 * SECOND, node, (1,)) for node in (0, 1)]
    assert changes == [*joins, Vanish(3 * SECOND, 2), Vanish(3 * SECOND, 3)]
    with pytest.raises(ExperimentError, match=r"script\[0\]: expected a node from 0 to 3, got 4"):
        scripted(ScriptedAction(1, 2, "crash", count=3))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(1, 0, "leave"), (2, 0, "crash")], r"script\[1\]: node 0 is down at 2 s"),
        ([(2, 0, "join"), (1, 0, "leave"), (3, 0, "join")], r"script\[2\]: node 0 is up at 3 s"),
        ([(1, 0, "join"), (2, 0, "join")], r"script\[1\]: node 0 is up at 2 s"),
        ([(1, 0, "leave"), (2, 0, "subscribe", (1,))], r"script\[1\]: node 0 is down at 2 s"),
        ([(1, 0, "subscribe", (1,))], r"script\[0\]: node 0 subscribes to \[1\] at 1 s"),
        ([(1, 0, "unsubscribe", (1,)), (2, 0, "unsubscribe", (1,))], r"node 0 does not subscribe to \[1\] at 2 s"),
        ([(1, 4, "leave")], r"script\[0\]: expected a node from 0 to 3, got 4"),
        ([(1, 0, "subscribe", (3,))], r"expected topics from 0 to 2, got \[3\]"),
        ([(1, 0, "subscribe")], r"script\[0\]: node 0 names no topics at 1 s"),
        ([(1, 0, "leave"), (2, 0, "join", (1, 1))], r"script\[1\]: node 0 names a topic twice in \[1, 1\] at 2 s"),
        ([(1, 0, "leave", (1,))], '"leave" takes no topics'),
        ([(-6, 0, "leave")], r"-6 s is not within the run, -5 to 33 s"),
        ([(33, 0, "leave")], r"33 s is not within the run"),
    ],
)
def test_impossible_scripts_are_refused(entries: list[tuple], problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        scripted(*entries)


def from_trace(tmp_path: Path, text: str, nodes: int = 2, name: str = "x.csv", **given: object) -> Sessions:
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return draw_sessions(ChurnSpec(kind="sessions", path=name, **given), nodes, SPAN, 1, tmp_path)


def seconds(sessions: Sessions) -> list[list[tuple[float, float]]]:
    return [[(s.from_ns / 1e9, s.to_ns / 1e9) for s in own] for own in sessions]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_a_trace_is_cut_to_the_run(name: str, tmp_path: Path) -> None:
    text = "node,start_s,end_s\n77,100,110\nb,0,300\n77,200,400\n77,120,125\n9,1,2\n"
    sessions = from_trace(tmp_path, text, name=name, origin_s=105)
    check_sessions(sessions, SPAN)
    assert seconds(sessions) == [[(-5, 0), (10, 15)], [(-5, 60)]]
    faster = from_trace(tmp_path, text, name=name, origin_s=105, speedup=10)
    assert seconds(faster) == [[(-5, -4.5), (-3.5, -3), (4.5, 24.5)], [(-5, 14.5)]]


def test_sessions_that_touch_or_overlap_are_one(tmp_path: Path) -> None:
    text = "a,0,10\na,10,20\na,15,18\na,19,30\nb,1,2\n"
    assert seconds(from_trace(tmp_path, text)) == [[(-5, 25)], [(-4, -3)]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,0,1\na,3,2\nb,0,1\n", "x.csv:2: expected node,from_s,to_s with from < to, got 'a,3,2'"),
        ("a,0\n", "x.csv:1: expected node,from_s,to_s"),
        ("a,0,x\n", "x.csv:1: expected node,from_s,to_s"),
        ("a,nan,3\n", "x.csv:1: expected node,from_s,to_s"),
        ("a,0,1\n", "x.csv: expected sessions of 2 nodes, got 1"),
    ],
)
def test_traces_that_are_wrong_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=problem):
        from_trace(tmp_path, text)


@pytest.mark.data
def test_a_day_of_skype(data_folder: Path) -> None:
    spec = ChurnSpec(kind="sessions", path="skype-churn/skype-superpeers-sessions.csv.gz", origin_s=1_000_000)
    span = Span(0, 86_400 * SECOND)
    sessions = draw_sessions(spec, 2081, span, 1, data_folder)
    check_sessions(sessions, span)
    assert 0.1 < share_up(sessions, span.end_ns // 2) < 0.9


def test_the_papers_churn_of_thousands_is_drawn_in_seconds() -> None:
    experiment = Experiment(
        "x",
        workload=WorkloadSpec(topics=100, warmup_s=0, duration_s=1000, publish_rate_per_s=1),
        interests=InterestsSpec(kind="popularity"),
        churn=ChurnSpec(kind="exponential", on_s=500),
    )
    begin = time.process_time()
    drawn = draw_workload(experiment, 2500, HERE)
    assert time.process_time() - begin < 10
    check_possible(drawn, experiment)
    joins = sum(isinstance(action, Join) for action in drawn.schedule)
    assert joins == pytest.approx(2500 * 1000 / 625, rel=0.1)


WINDOW = "node,start_s,end_s\nearly,0,99\na,90,120\na,150,170\nb,0,300\nlate,200,400\nc,130,140\n"


def in_window(tmp_path: Path, nodes: int, seed: int = 1, **given: object) -> Sessions:
    (tmp_path / "x.csv").write_text(WINDOW)
    spec = ChurnSpec(kind="sessions", path="x.csv", origin_s=100, end_s=200, **given)
    return draw_sessions(spec, nodes, Span(-5 * SECOND, 95 * SECOND), seed, tmp_path)


def test_a_window_has_the_nodes_with_sessions_in_it_in_an_order_of_the_seed(tmp_path: Path) -> None:
    own = [[(-5, 15), (45, 65)], [(-5, 95)], [(25, 35)]]
    orders = [seconds(in_window(tmp_path, 3, seed)) for seed in range(20)]
    assert all(sorted(order) == sorted(own) for order in orders)
    assert len({str(order) for order in orders}) > 3
    assert [seconds(in_window(tmp_path, 2, seed)) for seed in range(20)] == [order[:2] for order in orders]


def test_a_trace_with_too_few_nodes_is_used_again_shifted_within_the_window(tmp_path: Path) -> None:
    sessions = in_window(tmp_path, 60)
    check_sessions(sessions, Span(-5 * SECOND, 95 * SECOND))
    assert sessions[:3] == in_window(tmp_path, 3)
    up_s = [round(sum(to_s - from_s for from_s, to_s in own), 6) for own in seconds(sessions)]
    assert up_s == up_s[:3] * 20, "a shift keeps the time that a node is up"
    places = [at_s for own in seconds(sessions) for at_s, _ in own if len(own) == 1]
    assert len(set(places)) > 15, "no two of them join together"
    assert any(own[0][0] == -5 and own[-1][1] == 95 and len(own) > 1 for own in seconds(sessions)), "one wraps around"


def test_a_window_must_hold_the_run_and_some_session(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"\$\.churn\.end_s: expected at least 210, the trace's instant at which"):
        in_window(tmp_path, 3, speedup=1.1)
    (tmp_path / "y.csv").write_text("a,0,9\n")
    spec = ChurnSpec(kind="sessions", path="y.csv", origin_s=9, end_s=90)
    with pytest.raises(ExperimentError, match=r"y\.csv: no session between 9 and 90 s"):
        draw_sessions(spec, 3, SPAN, 1, tmp_path)
