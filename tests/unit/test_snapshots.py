"""Which links of a simulation the studies' snapshots count."""

from types import SimpleNamespace

from harness.studies.snapshots import count_slots, take_snapshot
from metrics.overlay.snapshot import Snapshot
from peer.core.parts import Neighbour


def simulation(*links: tuple[int, int, bool], brief: tuple[tuple[int, int], ...] = (), down: tuple[int, ...] = ()):
    """Nodes 0 to 3 on these links (opener, other, whether there is a logical link), brief at the ends named."""
    states = [SimpleNamespace(topics=frozenset({7}), neighbours={}) for _ in range(4)]
    for one, other, logical in links:
        for node, peer, outbound in ((one, other, True), (other, one, False)):
            carried = (7,) if logical else ()
            states[node].neighbours[peer] = Neighbour(outbound, logical=carried, brief=(node, peer) in brief)
    hosts = {
        number: SimpleNamespace(node=None if number in down else SimpleNamespace(state=state))
        for number, state in enumerate(states)
    }
    return SimpleNamespace(hosts=hosts)


def links_of(snapshot: Snapshot) -> list[list[int]]:
    return snapshot.links.tolist()


def test_a_link_counts_unless_it_is_brief_at_both_ends():
    links = [(0, 1, True), (1, 2, False), (2, 3, False)]
    brief = ((1, 2), (2, 1), (3, 2))
    assert links_of(take_snapshot(simulation(*links))) == [[0, 1], [1, 2], [2, 3]]
    assert links_of(take_snapshot(simulation(*links, brief=brief))) == [[0, 1], [2, 3]]


def test_nodes_that_are_down_or_left_out_have_no_links():
    links = [(0, 1, True), (1, 2, False), (2, 3, False)]
    assert links_of(take_snapshot(simulation(*links), leave_out=(3,))) == [[0, 1], [1, 2]]
    assert links_of(take_snapshot(simulation(*links, down=(3,)))) == [[0, 1], [1, 2]]


def test_of_the_links_asked_for_only_lasting_ones_are_shared_out():
    links = [(0, 1, False), (0, 3, False), (1, 3, False), (3, 2, False)]
    adversaries = 1 << 3
    assert count_slots(simulation(*links), adversaries) == (2, 3)
    assert count_slots(simulation(*links, brief=((0, 3),)), adversaries) == (1, 2)
    assert count_slots(simulation((2, 3, False), brief=((2, 3),)), adversaries) == (0, 0)
