"""How a node's schedule is divided into the stretches that its processes carry out."""

from hypothesis import given
from hypothesis import strategies as st

from peer.core.schedule import Action, Crash, Join, Leave, Publish, Vanish
from peer.instances.bootstrap import Step
from peer.runtime.restarts import divide


def steps(kinds: list[str]) -> list[Step]:
    made: dict[str, Action] = {
        "crash": Crash(0, 1),
        "vanish": Vanish(0, 1),
        "leave": Leave(0, 1),
        "join": Join(0, 1, ()),
        "publish": Publish(0, 1, 1, (0,)),
    }
    return [Step(at_ns, made[kind]) for at_ns, kind in enumerate(kinds)]


def test_a_node_that_never_crashes_has_one_stretch():
    own = steps(["publish", "leave", "join"])
    assert divide(own, up=True) == [(0, 0, tuple(own))]
    assert divide([], up=False) == [(0, 0, ())]


def test_every_instance_has_a_number_of_its_own():
    own = steps(["leave", "join", "crash", "join", "vanish", "join", "leave", "join", "crash"])
    for up, before in ((True, [0, 2, 3, 5]), (False, [0, 1, 2, 4])):
        assert [stretch.instances for stretch in divide(own, up)] == before


@given(st.lists(st.sampled_from(["crash", "vanish", "leave", "join", "publish"]), max_size=12), st.booleans())
def test_each_stretch_but_the_last_ends_with_its_only_crash(kinds: list[str], up: bool):
    own = steps(kinds)
    *crashing, last = divide(own, up)
    assert [step for stretch in (*crashing, last) for step in stretch.steps] == own
    for stretch in crashing:
        *before, end = [isinstance(step.action, Crash | Vanish) for step in stretch.steps]
        assert end and not any(before)
    assert not any(isinstance(step.action, Crash | Vanish) for step in last.steps)
    assert [stretch.number for stretch in (*crashing, last)] == list(range(len(crashing) + 1))
