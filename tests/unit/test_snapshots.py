"""Which links of a simulation the studies' snapshots count."""

from types import SimpleNamespace

from harness.studies.snapshots import count_slots, take_snapshot
from metrics.overlay.snapshot import Integers
from peer.core.parts import Neighbour


def simulation(*links: tuple[int, int, bool], brief: tuple[tuple[int, int], ...] = (), down: tuple[int, ...] = ()):
    """Nodes 0 to 3 on these links (opener, other, whether there is a logical link), brief at the ends named."""
    states = [SimpleNamespace(topics=frozenset({7}), neighbours={}) for _ in range(4)]
    connections: list[dict[int, SimpleNamespace]] = [{} for _ in range(4)]
    for one, other, logical in links:
        for node, peer, outbound in ((one, other, True), (other, one, False)):
            carried = (7,) if logical else ()
            states[node].neighbours[peer] = Neighbour(outbound, logical=carried, brief=(node, peer) in brief)
            connections[node][peer] = SimpleNamespace(opener=outbound)
    hosts = {
        number: SimpleNamespace(
            node=None if number in down else SimpleNamespace(state=state), links=connections[number]
        )
        for number, state in enumerate(states)
    }
    return SimpleNamespace(hosts=hosts)


def pairs(rows: Integers) -> list[list[int]]:
    return rows.tolist()


def slots(made: SimpleNamespace, adversaries: int, leave_out: tuple[int, ...] = ()) -> tuple[int, list[int]]:
    counted = count_slots(made, leave_out, adversaries)
    return counted.to_adversaries, counted.of_nodes.tolist()


def test_a_link_counts_unless_it_is_brief_at_both_ends():
    links = [(0, 1, True), (1, 2, False), (2, 3, False)]
    brief = ((1, 2), (2, 1), (3, 2))
    assert pairs(take_snapshot(simulation(*links)).links) == [[0, 1], [1, 2], [2, 3]]
    assert pairs(take_snapshot(simulation(*links, brief=brief)).links) == [[0, 1], [2, 3]]


def test_nodes_that_are_down_or_left_out_have_no_links():
    links = [(0, 1, True), (1, 2, False), (2, 3, False)]
    for snapshot in (take_snapshot(simulation(*links), leave_out=(3,)), take_snapshot(simulation(*links, down=(3,)))):
        assert pairs(snapshot.links) == pairs(snapshot.openings) == [[0, 1], [1, 2]]


def test_an_opening_is_by_the_node_that_opened_the_connection():
    links = [(1, 0, True), (1, 2, False), (3, 2, False)]
    brief = ((1, 2), (2, 1), (3, 2))
    assert pairs(take_snapshot(simulation(*links)).openings) == [[1, 0], [1, 2], [3, 2]]
    assert pairs(take_snapshot(simulation(*links, brief=brief)).openings) == [[1, 0], [3, 2]]


def test_an_opening_does_not_depend_on_which_link_a_node_calls_its_own():
    made = simulation((1, 0, True))
    for node, peer in ((0, 1), (1, 0)):
        made.hosts[node].node.state.neighbours[peer] = Neighbour(outbound=True)
    assert pairs(take_snapshot(made).openings) == [[1, 0]]


def test_an_opening_is_known_from_the_end_that_has_the_connection_still():
    made = simulation((1, 0, True), (3, 2, True))
    made.hosts[1].links.clear()
    made.hosts[2].links.clear()
    assert pairs(take_snapshot(made).openings) == [[1, 0], [3, 2]]
    made.hosts[0].links.clear()
    snapshot = take_snapshot(made)
    assert pairs(snapshot.openings) == [[3, 2]]
    assert pairs(snapshot.links) == [[0, 1], [2, 3]]


def test_of_the_links_asked_for_only_lasting_ones_are_shared_out():
    links = [(0, 1, False), (0, 3, False), (1, 3, False), (3, 2, False)]
    adversaries = 1 << 3
    assert slots(simulation(*links), adversaries) == (2, [2, 1, 0])
    assert slots(simulation(*links, brief=((0, 3),)), adversaries) == (1, [1, 1, 0])
    assert slots(simulation((2, 3, False), brief=((2, 3),)), adversaries) == (0, [0, 0, 0])


def test_links_of_nodes_that_are_down_left_out_or_adversaries_are_not_shared_out():
    links = [(0, 1, False), (0, 3, False), (1, 3, False), (3, 2, False), (2, 0, False)]
    assert slots(simulation(*links), 0) == (0, [2, 1, 1, 1])
    assert slots(simulation(*links), 1 << 3, leave_out=(0,)) == (1, [1, 1])
    assert slots(simulation(*links, down=(1,)), 1 << 3) == (1, [2, 1])
