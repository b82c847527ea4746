"""The steps of pauses on real machines, and the instants that come back from them."""

from types import SimpleNamespace
from unittest.mock import MagicMock

from hypothesis import given
from hypothesis import strategies as st

from harness.testbeds.remote.pausing import Pauses, Step, steps_of
from metrics.rundir import AppliedChange, ClockOffset, Placement
from topologies.timeline import Change

HOSTS = 4
ZERO_NS = 1000

changes = st.lists(
    st.builds(
        lambda begin, length, hosts: Change(begin, 0, None if length is None else begin + length, paused=hosts),
        st.integers(0, 8),
        st.none() | st.integers(1, 8),
        st.sets(st.integers(0, HOSTS - 1)).map(lambda hosts: tuple(sorted(hosts))),
    ),
    max_size=5,
)


@given(changes)
def test_steps_keep_exactly_the_paused_hosts_stopped(pauses: list[Change]) -> None:
    link = Change(3, 0, 5, sources=(0,), destinations=(1,), is_cut=True)
    steps = {step.at_ns: step for step in steps_of([link, *pauses], HOSTS, ZERO_NS)}
    assert ZERO_NS + 5 not in steps or any(5 in (each.from_ns, each.to_ns) for each in pauses)
    stopped: set[int] = set()
    for at_ns in range(20):
        if step := steps.get(ZERO_NS + at_ns):
            assert not stopped & {*step.stop} and {*step.resume} <= stopped
            stopped = stopped - {*step.resume} | {*step.stop}
        asked = {
            host
            for each in pauses
            for host in each.paused
            if each.from_ns <= at_ns and (each.to_ns is None or at_ns < each.to_ns)
        }
        assert stopped == asked


def test_a_machine_gets_its_own_nodes_on_its_own_clock() -> None:
    step = Step(50, stop=(0, 2, 3), resume=(1,))
    assert step.on({0: 10, 1: 11, 2: 12}, ahead_ns=-7) == Step(43, stop=(10, 12), resume=(11,))


def test_an_instant_is_applied_when_the_last_machine_has_passed_it() -> None:
    scripts = {
        "a": MagicMock(**{"read_line.return_value": b"[1010, 1021]"}),
        "b": MagicMock(**{"read_line.return_value": b"[7013]"}),
    }
    sessions = [SimpleNamespace(machine=SimpleNamespace(name=name), start_script=lambda _, it=it: it)
                for name, it in scripts.items()]  # fmt: skip
    deployment = MagicMock(
        clocks={"a": ClockOffset(0, 0, 0), "b": ClockOffset(0, 6000, 1)},
        each=lambda step, action: {session.machine.name: action(session) for session in sessions},
    )
    placement = [Placement(0, 0, "a", "10.0.0.1", ""), Placement(1, 1, "b", "10.0.0.2", "")]
    pauses = Pauses(deployment, placement, [Change(10, 0, 20, paused=(1,))])
    pauses.start()
    pauses.schedule(ZERO_NS)
    assert scripts["a"].tell.call_args[0] == (
        b'[{"at_ns":1010,"stop":[],"resume":[]},{"at_ns":1020,"stop":[],"resume":[]}]',
    )
    assert scripts["b"].tell.call_args[0] == (
        b'[{"at_ns":7010,"stop":[1],"resume":[]},{"at_ns":7020,"stop":[],"resume":[1]}]',
    )
    pauses.end()
    assert pauses.applied({"b": ClockOffset(0, 6000, 1)}) == [AppliedChange(1010, 1013)]


def test_a_run_without_pauses_has_no_pausers() -> None:
    deployment = MagicMock()
    pauses = Pauses(deployment, [], [Change(0, 0, is_cut=True, sources=(0,), destinations=(1,))])
    pauses.start()
    pauses.schedule(0)
    pauses.end()
    assert not deployment.each.called and pauses.applied({}) == []
