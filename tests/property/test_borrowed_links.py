"""A link is there as long as a part of one of its two nodes uses it, where some parts share links and one borrows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import TimerFired
from peer.core.frames import Subscriptions
from peer.core.node import ComposedNode
from peer.core.parts import Part, State
from peer.testing import Pump
from tests.examples import examples

MS, SECOND_NS = 1_000_000, 1_000_000_000


class Borrower(Part):
    """Borrows links and gives them back when a timer says so."""

    borrows = True

    def fire(self, turn, name):
        _, what, peer = name.split("/")
        if what == "borrow":
            turn.borrow(int(peer))
        else:
            turn.give_back(int(peer), "given back")


class User(Part):
    """Wants links when a timer says so, asks again for those that end, and says on each that it is there."""

    frames = (Subscriptions,)

    def __init__(self, state):
        super().__init__(state)
        self.mine: set[int] = set()

    def fire(self, turn, name):
        _, what, peer = name.split("/")
        if what == "connect":
            self.mine.add(int(peer))
            turn.connect(int(peer))
        else:
            self.mine.discard(int(peer))
            turn.disconnect(int(peer), "pruned")

    def link_up(self, turn, peer):
        turn.send(peer, Subscriptions(()))

    def link_down(self, turn, peer, reason, retrying):
        if peer in self.mine and not retrying:
            turn.connect(peer)


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["membership/borrow", "membership/give back", "overlay/connect", "overlay/disconnect"]),
            st.integers(0, 1),
            st.sampled_from([0, 0, 3, 40, 200]),
        ),
        max_size=15,
    ),
    st.sampled_from([0, 1, 35]),
)
def test_a_borrowed_link_is_there_as_long_as_a_part_uses_it_and_no_longer(steps, delay_ms):
    users = {}
    nodes = {}
    for node in range(2):
        state = State(node, 1, (), 2)
        users[node] = User(state)
        nodes[node] = ComposedNode(state, {"membership": Borrower(state), "overlay": users[node]})
    pump = Pump(nodes, lambda source, destination: delay_ms * MS)
    pump.start()
    for what, node, pause_ms in steps:
        if what == "membership/give back" and 1 - node not in nodes[node].state.borrowed:
            continue
        pump.give(node, TimerFired(f"{what}/{1 - node}"))
        pump.run(pause_ms * MS)
    pump.run(10 * SECOND_NS)
    used = any(users[node].mine or nodes[node].state.borrowed for node in nodes)
    assert pump.links() == ({(0, 1)} if used else set())
    assert [pump.linked(node) for node in nodes] == ([{1}, {0}] if used else [set(), set()])
    for node, made in nodes.items():
        assert set(made.state.neighbours) == ({1 - node} if any(user.mine for user in users.values()) else set())
