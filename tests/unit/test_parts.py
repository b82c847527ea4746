"""Who writes a node's state, and which parts go together."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import peer
from peer.core.contract import (
    Connect,
    Directory,
    FrameReceived,
    LinkDown,
    LinkUp,
    PeerInfo,
    PeerList,
    Started,
    Subscribe,
    TimerFired,
)
from peer.core.dissemination.flood import Flood, FloodParameters
from peer.core.frames import Subscriptions
from peer.core.node import ComposedNode
from peer.core.parts import Neighbour, Part, State
from peer.protocols.registry import MEMBERSHIPS, PROTOCOLS, Composition, compose

FIELDS = {*Neighbour.__struct_fields__, *State.__slots__}


def make_node(protocol: str = "random", neighbours: tuple[int, ...] = (1,)) -> ComposedNode:
    parts = replace(PROTOCOLS[protocol].composition, membership={"name": "full"})  # borrows no links
    node = compose(0, 1, (5,), parts, nodes=4)
    assert isinstance(node, ComposedNode)
    node.handle(0, Started())
    for peer_number in neighbours:
        node.handle(0, LinkUp(peer_number, False))
    return node


@pytest.mark.parametrize("field", [name for name in State.__slots__ if not name.startswith("_")])
def test_no_field_of_the_state_can_be_assigned(field: str):
    state = State(0, 1, (5,))
    before = getattr(state, field)
    with pytest.raises(AttributeError, match=field):
        setattr(state, field, None)
    assert getattr(state, field) is before


@pytest.mark.parametrize("field", Neighbour.__struct_fields__)
def test_no_field_of_a_neighbour_can_be_assigned(field: str):
    neighbour = Neighbour(True)
    before = getattr(neighbour, field)
    with pytest.raises(AttributeError):
        setattr(neighbour, field, None)
    assert getattr(neighbour, field) is before


def test_no_part_changes_the_links():
    state = make_node().state
    with pytest.raises(TypeError):
        state.neighbours[2] = Neighbour(True)
    with pytest.raises(TypeError):
        del state.neighbours[1]
    for change in ("clear", "pop", "update"):
        assert not hasattr(state.neighbours, change)
    for links in (state.wanted, state.borrowed, state.aside):
        assert not {"add", "discard", "remove", "clear", "pop", "update"} & set(dir(links))
    assert list(state.neighbours) == [1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_part_writes_the_fields_that_it_lists_and_no_others(protocol: str):
    node = make_node(protocol)
    for part in dict.fromkeys(node.parts.values()):
        assert part.writes <= FIELDS
        for field in FIELDS:
            is_neighbours = field in Neighbour.__struct_fields__
            target = node.state.neighbours[1] if is_neighbours else node.state
            before = getattr(target, field)
            number = 1 if is_neighbours else None
            if field in part.writes:
                part.write(number, **{field: "new"})
                assert getattr(target, field) == "new"
                part.write(number, **{field: before})
            else:
                with pytest.raises(AttributeError, match=f"{type(part).__name__} writes .*, not .*{field}"):
                    part.write(number, **{field: "new"})
            assert getattr(target, field) is before


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_logical_links_are_set_by_their_owner_alone(protocol: str):
    node = make_node(protocol)
    owners = [part for part in dict.fromkeys(node.parts.values()) if "logical" in part.writes]
    assert len(owners) == (protocol != "implicit-groups"), "its links serve all topics alike"
    for part in node.parts.values():
        if part not in owners:
            with pytest.raises(AttributeError, match="logical"):
                part.set_logical(None, 1, (5,), "")


def test_two_parts_that_write_the_same_field_do_not_go_together():
    parts = Composition({"name": "spidercast"}, {"name": "topic-flood"}, interests="announced")
    with pytest.raises(ValueError, match="AnnouncedInterests and SpiderCast both own"):
        compose(0, 1, (5,), parts)


def test_two_parts_that_receive_the_same_frames_do_not_go_together():
    state = State(0, 1, ())
    with pytest.raises(ValueError, match="Flood and Flood both own Data"):
        ComposedNode(state, {"one": Flood(state, FloodParameters()), "other": Flood(state, FloodParameters())})


def test_only_the_node_and_the_turn_touch_what_is_behind_the_views():
    """The underscored fields are not protected at run time."""
    private = "|".join(name for name in State.__slots__ if name.startswith("_"))
    [room] = peer.__path__
    touching = {
        path.relative_to(room).as_posix()
        for path in Path(room).rglob("*.py")
        if re.search(rf"state\.({private})\b", path.read_text())
    }
    assert touching == {"core/node.py", "core/parts.py"}


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_only_the_membership_changes_the_candidates(membership: str):
    node = compose(0, 1, (5,), Composition({"name": "random"}, membership={"name": membership}))
    with pytest.raises(AttributeError):
        node.parts["membership"].known = 6


def test_the_page_has_every_field_and_the_parts_that_write_it():
    lines = (Path(__file__).parents[2] / "docs" / "protocol-contract.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    writers = {name: row[-1] for row in rows if len(row) in (3, 4) for name in re.findall(r"`(\w+)`", row[0])}
    public = {field for field in FIELDS if not field.startswith("_")}
    assert public <= writers.keys()
    for protocol in PROTOCOLS:
        for role, part in make_node(protocol).parts.items():
            assert all(role in writers[field] for field in part.writes if role != "dissemination")


# ------------------------------------------------------------------------------------------------------------ roles


class Counting(Part):
    """Counts the events that it hears of."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.heard: list[str] = []

    def start(self, turn):
        self.heard.append("start")

    def fire(self, turn, name):
        self.heard.append(name)

    def subscribe(self, turn, topic):
        self.heard.append("subscribe")


def test_a_part_in_two_roles_hears_of_each_event_once_and_of_the_timers_of_both():
    state = State(0, 1, ())
    part = Counting(state)
    node = ComposedNode(state, {"overlay": part, "dissemination": part})
    for event in (Started(), TimerFired("overlay/x"), TimerFired("dissemination/y"), Subscribe(3)):
        node.handle(0, event)
    assert part.heard == ["start", "overlay/x", "dissemination/y", "subscribe"]


@pytest.mark.parametrize("protocol", [name for name, it in PROTOCOLS.items() if "dissemination" in it.parts])
def test_a_dissemination_that_is_an_overlay_fills_both_roles(protocol: str):
    parts = make_node(protocol).parts
    assert parts["overlay"] is parts["dissemination"]
    interests = PROTOCOLS[protocol].composition.interests
    apart = compose(0, 1, (5,), Composition({"name": protocol}, interests=interests)).parts
    assert isinstance(apart["dissemination"], Flood)
    assert isinstance(parts["overlay"], type(apart["overlay"])), "the overlay alone is what the whole extends"


def test_a_part_in_two_roles_has_the_parameters_of_both():
    """What one role sets holds, whatever the other's default is."""
    whole = Composition({"name": "gossipsub", "connections": 2}, {"name": "gossipsub", "mcache_len": 9})
    with pytest.raises(ValueError, match="both own logical"):
        compose(0, 1, (5,), whole)
    node = compose(0, 1, (5,), Composition(whole.overlay, whole.dissemination, interests="announced-only"))
    node.handle(0, Started())
    effects = node.handle(0, PeerList(Directory(PeerInfo(number, (5,)) for number in range(9))))
    assert sum(isinstance(effect, Connect) for effect in effects) == 2
    with pytest.raises(ValueError, match="mcache_gossip"):
        compose(0, 1, (5,), Composition({"name": "gossipsub", "mcache_gossip": 5}, whole.overlay | {"mcache_len": 4}))


# -------------------------------------------------------------------------------------------------------- receivers


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.none() | st.booleans() | st.sets(st.integers(0, 2)).map(sorted).map(tuple)),
        max_size=25,
    )
)
def test_the_receivers_of_a_topic_are_the_neighbours_that_it_goes_on_to(steps):
    node = make_node(neighbours=())
    state = node.state
    for peer_number, what in steps:
        if peer_number not in state.neighbours:
            node.handle(0, LinkUp(peer_number, False))
        elif isinstance(what, tuple):
            node.handle(0, FrameReceived(peer_number, Subscriptions(what)))
        elif what is not None:
            node.handle(0, LinkDown(peer_number, "test", retrying=what))
        for topic in range(3):
            expected = [number for number, neighbour in state.neighbours.items() if topic in neighbour.forwards]
            assert list(state.receivers(topic)) == expected
