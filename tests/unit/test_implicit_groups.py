"""Implicit groups: what a node does with single frames, also malformed and hostile ones, and limits of its work."""

from math import pi

import msgspec
import pytest

from peer.core.contract import Connect, Publish, message_id
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.protocols.implicit_groups import cast as casting
from peer.protocols.implicit_groups.addressing.extent import AddressSpace, Extent
from peer.protocols.implicit_groups.cast import MOST_UNEXPLORED
from peer.protocols.implicit_groups.encoding import (
    MOST_EXTENTS,
    Way,
    decode_way,
    encode_way,
    pack,
    pack_all,
    target_of,
    unpack,
    unpack_all,
)
from peer.protocols.implicit_groups.frames import (
    GroupAlive,
    GroupFind,
    GroupJoin,
    GroupLeave,
    GroupRefusal,
    GroupUpdate,
    GroupWelcome,
)
from peer.protocols.implicit_groups.neighbours import MOST_ENTRIES, MOST_QUEUED
from peer.protocols.implicit_groups.surface import Surface, overlapping
from peer.protocols.registry import PROTOCOLS, compose
from peer.testing import Solo
from peer.testing.reading import connects, sends
from tests.group_network import SECOND_NS

SPACE = AddressSpace(12, 2)
ROOT = Extent(2)
NODES = 12


def extent(digits: str) -> Extent:
    return Extent.of_digits(digits, 2)


def extents(digits: str) -> frozenset[Extent]:
    return frozenset(map(extent, digits.split()))


def surface_of(address: str, managed: str) -> Surface:
    surface = Surface(SPACE, extent(address).path)
    surface.take(extents(managed))
    return surface


# ROUTE


def test_an_overlapping_neighbour_comes_before_nearer_ones():
    surface = surface_of("000000", "0")
    surface.learn(1, extents("1"))
    surface.learn(2, extents("2"))
    assert surface.next_hop(extents("12"), ()) == (1, False)
    assert surface.next_hop(extents("2"), ()) == (2, False)
    assert surface.next_hop(extents("3"), ()) in [(1, False), (2, False)]


def test_a_hop_that_is_no_nearer_is_a_detour_and_visited_nodes_are_passed_over():
    surface = surface_of("000000", "00")
    surface.learn(1, extents("11"))
    assert surface.next_hop(extents("03"), ()) == (1, True)
    assert surface.next_hop(extents("03"), (1,)) is None
    surface.learn(2, extents("01"))
    assert surface.next_hop(extents("03"), ()) == (2, False)


def test_a_hop_at_the_same_distance_is_a_detour():
    """Extents 1 and 2 are as far from 3: next to it, and from its centre."""
    surface = surface_of("100000", "1")
    surface.keep(1, extents("2"))
    assert surface.next_hop(extents("3"), ()) == (1, True)


# Encoding


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
def test_extents_survive_their_bytes(dimensions: int):
    space = AddressSpace(15, dimensions)
    for one in (Extent(dimensions), Extent(dimensions, 2, 1), space.extent(12345), Extent(dimensions, 1, 0)):
        assert unpack(pack(one), space) == one


def test_a_list_of_extents_has_none_that_another_covers():
    assert unpack_all(pack_all(extents("0 01 2")), SPACE) == extents("0 2")


BAD_EXTENTS = [b"", b"\0", b"\x02", b"\xff" * 20, b"\0" * 100 + b"\x01", pack(Extent(2, 7, 3)), b"\x01" + bytes(10**6)]


@pytest.mark.parametrize("content", BAD_EXTENTS, ids=range(len(BAD_EXTENTS)))
def test_bytes_that_are_no_extent(content: bytes):
    with pytest.raises(ValueError):
        unpack(content, SPACE)


def test_too_many_extents():
    with pytest.raises(ValueError, match="at most 4096"):
        unpack_all([pack(ROOT)] * (MOST_EXTENTS + 1), SPACE)
    assert unpack_all([pack(ROOT)] * MOST_EXTENTS, SPACE) == {ROOT}


@pytest.mark.parametrize("element", [b"", b"\x01", bytes(3), b"\xff\xff"])
def test_elements_that_are_no_address(element: bytes):
    with pytest.raises(ValueError):
        target_of((element,), SPACE)


# Hostile frames


def member(managed: str = "0 3", known: dict[int, str | None] | None = None, **parameters: object) -> Solo:
    """Node 5, which manages some extents and is linked with nodes that manage others."""
    parts = PROTOCOLS["implicit-groups"].composition
    given = {"extents": tuple(c.hex() for c in pack_all(extents(managed))), "linked": (), "first_seed": 1}
    given |= {"address_bits": 12, "check_s": 0.0} | parameters
    solo = Solo(compose(5, 1, (), msgspec.structs.replace(parts, overlay=parts.overlay | given), nodes=NODES))
    solo.start({})
    for node, text in ({1: "1", 2: "2"} if known is None else known).items():
        solo.link_up(node)
        if text is not None:
            solo.receive(node, GroupUpdate(pack_all(extents(text)), ()))
    solo.forget()
    return solo


def rejected(solo: Solo) -> list[str]:
    return [e.event.reason for e in solo.effects if type(e).__name__ == "Trace" and e.event.event == "reject"]


EVERYTHING = (pack(ROOT),)


def copy_of(routing: bytes, sequence: int = 0) -> Data:
    return Data(message_id(9, sequence), (0,), 1, UNLIMITED_TTL, b"x", routing)


def cast(elements: tuple[bytes, ...] = (b"\x03\xff",), unexplored=EVERYTHING, phi=1.0, hops=1, visited=()) -> Data:
    return copy_of(encode_way(Way(elements, unexplored, phi, hops, visited)))


GENERAL = (b"\x00\x00", b"\x08\x00")
BAD_CASTS = {
    "no routing": copy_of(b""),
    "garbage": copy_of(b"\xc1\xff"),
    "another structure": copy_of(msgspec.msgpack.encode({"a": 1})),
    "no elements": cast(elements=()),
    "too many elements": cast(elements=(b"\x03\xff",) * 65),
    "an element with too many bits": cast(elements=(b"\xff\xff",)),
    "an element that is too long": cast(elements=(bytes(10**5) + b"\x03\xff",)),
    "an empty element": cast(elements=(GENERAL[0],)),
    "an element of fewer bits than a keyword's": cast(elements=(b"\x03\xff", GENERAL[1])),
    "an extent that is too deep": cast(unexplored=(pack(Extent(2, 7, 1)),)),
    "too many extents": cast(unexplored=(pack(ROOT),) * (MOST_EXTENTS + 1)),
    "a long list of visited nodes": cast(visited=tuple(range(2000))),
    "a negative phi": copy_of(msgspec.msgpack.encode([[b"\x03\xff"], [pack(ROOT)], -1.0, 1])),
    "phi that is no number": copy_of(msgspec.msgpack.encode([[b"\x03\xff"], [pack(ROOT)], float("nan"), 1])),
    "a negative number of hops": copy_of(msgspec.msgpack.encode([[b"\x03\xff"], [pack(ROOT)], 1.0, -1])),
}


@pytest.mark.parametrize("frame", BAD_CASTS.values(), ids=BAD_CASTS)
def test_bad_casts_are_rejected_and_neither_delivered_nor_passed_on(frame: Data):
    solo = member()
    solo.receive(1, frame)
    assert rejected(solo) == ["bad_cast"]
    assert sends(solo.effects) == []
    assert frame.message_id not in solo.part("dissemination").seen


def test_a_cast_with_as_many_bits_as_a_keyword_sets_is_accepted():
    solo = member()
    solo.receive(1, cast(elements=(b"\x00\x03",)))
    assert rejected(solo) == []
    assert len(solo.sent(Data)) > 0


def test_a_cast_over_the_hop_limit_is_not_passed_on():
    solo = member(hop_limit=10)
    solo.receive(1, cast(elements=(b"\x00\x03",), hops=10))
    assert rejected(solo) == ["hop_limit"]
    assert solo.sent(Data) == []
    solo.receive(1, cast(elements=(b"\x00\x03",), hops=2**63))
    assert solo.sent(Data) == []
    solo.receive(1, cast(elements=(b"\x00\x03",), hops=9))
    assert [decode_way(frame.routing).hops for _, frame in solo.sent(Data)] == [10] * len(solo.sent(Data)) != []


def test_a_cast_with_wildcards_nearly_everywhere_is_divided_up_to_the_limit():
    solo = member(expansion_limit=16, branch_factor=0.0, address_bits=64, dimensions=2)
    solo.receive(1, cast(elements=(bytes(7) + b"\x03",), phi=0.0))
    assert rejected(solo) == []
    sent = [decode_way(frame.routing) for _, frame in solo.sent(Data)]
    assert 1 <= sum(len(way.unexplored) for way in sent) <= 16
    together = [one for way in sent for one in way.unexplored]
    assert len(set(together)) == len(together)


def test_a_node_with_too_much_to_reach_for_one_copy_sends_several():
    """It manages a part of one of the 256 extents, and three others are left of this one."""
    solo = member("00000", {1: "1", 2: "2"})
    everywhere = pack_all(Extent(2, 4, path) for path in range(MOST_UNEXPLORED))
    solo.receive(1, cast(elements=(b"\x00\x03",), unexplored=everywhere, phi=pi))
    sent = [decode_way(frame.routing).unexplored for _, frame in solo.sent(Data)]
    assert [len(unexplored) for unexplored in sent] == [MOST_UNEXPLORED, 2]
    assert len({one for unexplored in sent for one in unexplored}) == MOST_UNEXPLORED + 2


def test_the_branches_of_the_latest_messages_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(casting, "MOST_COUNTED", 4)
    solo = member()
    for number in range(10):
        solo.receive(
            1, msgspec.structs.replace(cast(elements=(b"\x00\x03",), phi=0.0), message_id=message_id(9, number))
        )
    assert list(solo.part("overlay").branched) == [(message_id(9, number), -1) for number in range(6, 10)]


def test_a_message_that_has_branched_often_enough_branches_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(casting, "MOST_BRANCHES", 3)
    solo = member()
    counts = []
    for _ in range(3):
        solo.forget()
        solo.receive(1, cast(elements=(b"\x00\x03",), phi=0.0))
        counts.append(len(solo.sent(Data)))
    assert counts[0] > 3
    assert counts[1:] == [1, 1]


def test_a_copy_without_unexplored_extents_is_delivered_and_goes_no_further():
    solo = member()
    solo.receive(1, cast(unexplored=()))
    assert sends(solo.effects) == []
    assert rejected(solo) == []


def test_the_branches_of_a_cast_reach_disjoint_extents_without_those_of_the_node():
    solo = member()
    solo.receive(1, cast(elements=(b"\x00\x03",), phi=0.5))
    sent = [(to, unpack_all(decode_way(f.routing).unexplored, SPACE)) for to, f in solo.sent(Data)]
    assert {to for to, _ in sent} == {1, 2}
    everything = [one for _, region in sent for one in region]
    assert not any(a.overlaps(b) for a in everything for b in everything if a is not b)
    assert not any(a.overlaps(own) for a in everything for own in extents("0 3"))


def test_the_second_copy_is_a_duplicate_that_is_still_passed_on():
    solo = member("0 3", {1: "1", 2: "2"})
    for _ in range(2):
        solo.forget()
        solo.receive(1, cast(elements=(b"\x00\x03",), unexplored=pack_all(extents("2")), phi=pi))
        assert [to for to, _ in solo.sent(Data)] == [2]
    assert [e.event.event for e in solo.effects if type(e).__name__ == "Trace"] == ["duplicate"]


MANY = tuple((node, pack_all(extents("1"))) for node in range(MOST_ENTRIES + 1))
LARGE = tuple((node, (pack(ROOT),) * 3000) for node in (1, 2))
BAD_FRAMES = {
    "an extent that is none": GroupUpdate((b"",), ()),
    "an extent that is too deep": GroupUpdate((pack(Extent(2, 7, 1)),), ()),
    "too many extents": GroupUpdate((pack(ROOT),) * (MOST_EXTENTS + 1), ()),
    "too many entries": GroupUpdate((), MANY),
    "too many extents in all": GroupUpdate((), LARGE),
    "an entry with an extent that is none": GroupUpdate((), ((3, (b"\x02",)),)),
    "a leave with too many entries": GroupLeave(MANY),
    "a welcome with an extent that is none": GroupWelcome((b"\x02",), (), ()),
    "an address that is too long": GroupJoin(3, b"\xff" * 3, 1, ()),
    "an address of a million bytes": GroupJoin(3, b"\xff" * 10**6, 1, ()),
    "a find of no extent": GroupFind(3, b"", 1, ()),
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_frames_with_bad_extents_are_rejected_and_change_nothing(frame: Frame):
    solo = member()
    surface = solo.part("overlay").surface
    before = surface.extents, dict(surface.neighbours)
    solo.receive(1, frame)
    assert rejected(solo) == ["bad_extents"]
    assert (surface.extents, surface.neighbours) == before
    assert sends(solo.effects) == []


def test_entries_of_unknown_nodes_are_neither_stored_nor_dialled():
    solo = member()
    for number in (NODES, 2**40):
        solo.receive(1, GroupUpdate(pack_all(extents("1")), ((number, pack_all(extents("2"))),)))
        solo.receive(1, GroupJoin(number, b"\x00\x01", 1, ()))
        solo.receive(1, GroupFind(number, pack(extent("0")), 1, ()))
    assert not [e for e in solo.effects if isinstance(e, Connect)]
    assert solo.part("overlay").surface.neighbours.keys() == {1, 2}
    assert rejected(solo) == ["bad_node", "bad_node"]


def test_a_join_in_the_nodes_own_name_is_rejected():
    solo = member()
    solo.receive(1, GroupJoin(5, b"\x00\x01", 1, ()))
    assert rejected(solo) == ["bad_node"]


def test_a_join_for_space_that_others_manage_is_routed_and_the_limits_count():
    solo = member(hop_limit=8)
    address = (0b01 << 10).to_bytes(2, "big")  # in extent 1
    solo.receive(2, GroupJoin(7, address, 3, ()))
    assert solo.sent(GroupJoin) == [(1, GroupJoin(7, address, 4, ()))]
    solo.forget()
    solo.receive(2, GroupJoin(7, address, 8, ()))
    solo.receive(2, GroupJoin(7, address, 1, tuple(range(8))))
    solo.receive(2, GroupFind(7, pack(extent("1")), 8, ()))
    solo.receive(2, GroupFind(7, pack(extent("1")), 1, tuple(range(20, 28))))
    assert rejected(solo) == ["hop_limit"] * 4
    assert sends(solo.effects) == []
    solo.receive(2, GroupJoin(7, address, 1, (1, 2)))
    assert rejected(solo)[4:] == ["no_way"]


def test_two_joins_for_the_same_extent_are_handled_one_after_the_other():
    solo = member("0 1 2 3", {1: None})
    address = (0b111111 << 6).to_bytes(2, "big")
    for newcomer in (7, 8):
        solo.receive(1, GroupJoin(newcomer, address, 1, ()))
    assert not solo.sent(GroupWelcome)
    solo.link_up(7)
    [(_, welcome)] = solo.sent(GroupWelcome)
    assert unpack_all(welcome.extents, SPACE) == extents("3")
    solo.link_up(8)
    assert len(solo.sent(GroupWelcome)) == 1
    assert [to for to, _ in solo.sent(GroupJoin)] == [7]


def test_a_newcomer_that_is_lost_before_it_acknowledges_gives_the_extent_back():
    address = (0b111111 << 6).to_bytes(2, "big")
    solo = member("0 1 2 3", {1: None})
    solo.receive(1, GroupJoin(7, address, 1, ()))
    solo.link_up(7)
    surface = solo.part("overlay").surface
    assert extent("3") not in surface.extents
    solo.link_down(7)
    assert surface.extents == extents("0 1 2 3")


def test_a_newcomer_that_has_acknowledged_keeps_its_extent_when_it_is_lost():
    address = (0b111111 << 6).to_bytes(2, "big")
    solo = member("0 1 2 3", {1: None})
    solo.receive(1, GroupJoin(7, address, 1, ()))
    solo.link_up(7)
    solo.receive(7, GroupUpdate(pack_all(extents("3")), ()))
    solo.link_down(7)
    assert solo.part("overlay").surface.extents == extents("0 1 2")


def test_a_welcome_that_nobody_asked_for_is_refused():
    solo = member()
    for region in ("0", "3", "2", ""):
        solo.receive(1, GroupWelcome(pack_all(extents(region)), (), ()))
    assert rejected(solo) == ["not_the_manager"] * 4
    assert solo.sent(GroupRefusal) == [(1, GroupRefusal(5))] * 4
    assert solo.part("overlay").surface.extents == extents("0 3")


def test_a_neighbour_that_leaves_hands_over_what_it_manages():
    solo = member()
    solo.receive(1, GroupWelcome(pack_all(extents("1")), (), ()))
    assert rejected(solo) == []
    assert solo.part("overlay").surface.extents == extents("0 1 3")


@pytest.mark.parametrize(("claimant", "kept"), [(1, "3"), (9, "0 3")])
def test_of_overlapping_extents_the_lower_number_keeps_its_own(claimant: int, kept: str):
    solo = member("0 3", {1: "1", 2: "2"})
    if claimant == 9:
        solo.link_up(9)
    solo.forget()
    solo.receive(claimant, GroupUpdate(pack_all(extents("0")), ()))
    assert rejected(solo) == ["overlapping_extents"]
    assert solo.part("overlay").surface.extents == extents(kept)


def test_a_node_that_lost_its_own_address_joins_again_by_way_of_the_other():
    solo = member("0 3")
    solo.receive(1, GroupUpdate(pack_all(extents("0 1")), ()))
    assert [to for to, _ in solo.sent(GroupJoin)] == [1]


@pytest.mark.parametrize(
    "frame", [GroupRefusal(3), GroupRefusal(1), GroupAlive(), GroupLeave(()), GroupFind(5, b"", 1, ())]
)
def test_frames_out_of_place_keep_the_extents(frame: Frame):
    solo = member()
    solo.receive(1, frame)
    assert solo.part("overlay").surface.extents == extents("0 3")
    assert sends(solo.effects) == []


def test_frames_that_wait_for_a_link_are_limited():
    solo = member("0 3", {1: "1"})
    solo.receive(1, GroupUpdate(pack_all(extents("1")), ((2, pack_all(extents("2"))),)))
    address = (0b10 << 10).to_bytes(2, "big")  # in extent 2, whose manager has no link yet
    for _ in range(MOST_QUEUED + 10):
        solo.receive(1, GroupJoin(7, address, 1, ()))
    assert rejected(solo) == ["queue_full"] * 10
    solo.forget()
    solo.link_up(2)
    assert len(solo.sent(GroupJoin, to=2)) == MOST_QUEUED


def test_a_publication_with_a_bad_expression_is_rejected():
    solo = member()
    solo.give(Publish((0,), message_id(5, 0), b"x", "a&"))
    assert rejected(solo) == ["bad_expression"]
    assert sends(solo.effects) == []


def test_a_publication_of_a_node_that_has_not_joined_waits():
    parts = PROTOCOLS["implicit-groups"].composition
    solo = Solo(compose(5, 1, (), parts, nodes=NODES))
    solo.start({1: None})
    for sequence in range(70):
        solo.give(Publish((0,), message_id(5, sequence), b"x", "a"))
    assert sends(solo.effects) == []
    solo.advance(10 * SECOND_NS)
    solo.link_up(1)
    assert len(solo.sent(GroupJoin, to=1)) == 1
    solo.receive(1, GroupWelcome((), ((1, (pack(ROOT),)),), (1,)))
    assert len(solo.sent(Data, to=1)) == 64


def test_the_cast_of_figure_5_in_spirit():
    """From the top right to a region around the middle: few copies leave with phi = 1.0, together for all of it."""
    sent = {}
    for phi in (0.0, 1.0, pi):
        solo = member("1", {1: "0", 2: "2", 3: "3"})
        solo.receive(3, cast(elements=(b"\x00\x03",), unexplored=pack_all(extents("03 21 30 32")), phi=phi))
        ways = [decode_way(frame.routing) for _, frame in solo.sent(Data)]
        regions = [one for way in ways for one in unpack_all(way.unexplored, SPACE)]
        assert len(set(regions)) == len(regions) == sum(len(way.unexplored) for way in ways)
        sent[phi] = len(ways), frozenset(regions)
    assert sent[pi][0] == 1 < sent[1.0][0] < sent[0.0][0]
    assert sent[0.0][1] == sent[1.0][1] == sent[pi][1]


def test_a_linked_node_becomes_a_neighbour_when_the_own_extents_grow():
    """It said what it manages before that was adjacent."""
    solo = member("0", {1: "1", 9: "3"})
    assert solo.part("overlay").surface.neighbours.keys() == {1}
    solo.receive(1, GroupWelcome(pack_all(extents("1")), (), ()))
    assert solo.part("overlay").surface.neighbours == {1: extents("1"), 9: extents("3")}


# Repair

TAKEOVER = {"check_s": 1.0, "takeover_s": 2.0}


def times_of_takeovers(solo: Solo) -> dict[str, int]:
    """When a node takes over extents, in whole seconds."""
    surface, found = solo.part("overlay").surface, dict[Extent, int]()
    own = surface.extents
    for time_s in range(1, 30):
        solo.advance(SECOND_NS)
        for one in surface.extents - own - found.keys():
            found[one] = time_s
    return {str(one): time_s for one, time_s in found.items()}


def test_a_lost_neighbours_extents_are_taken_over_and_then_what_lies_behind_them():
    """With as much as its neighbours, the node waits 3 s. Extent 3, which nobody knows, counts from the same instant.

    Then the node manages 0 and 1, so it waits four times 2 s * (1 + 2 / 3), 13.3 s.
    """
    solo = member("0", {1: "1", 2: "2"}, **TAKEOVER)
    solo.link_down(1)
    times = times_of_takeovers(solo)
    assert times.keys() == {"1", "3"}
    assert 3 <= times["1"] <= 5
    assert 13 <= times["3"] <= 15
    assert len(solo.sent(GroupFind)) > 5


def test_what_lies_behind_a_hole_is_looked_for_before_it_is_taken_over():
    """Extent 1, which nobody knows, waits four times 3 s. At the next check, extent 3 is found and old enough."""
    solo = member("0", {2: "2"}, **TAKEOVER | {"check_s": 2.0})
    times = times_of_takeovers(solo)
    assert 12 <= times["1"] <= 15
    assert times["3"] - times["1"] == 2 + 2 * 2
    assert any(frame.goal == pack(extent("3")) for _, frame in solo.sent(GroupFind))


def test_a_node_without_neighbours_asks_who_else_manages_its_address():
    solo = member("0", {1: "1"}, **TAKEOVER)
    solo.meet({1: None, 7: None})
    solo.link_down(1)
    solo.advance(3 * SECOND_NS)
    assert 7 in connects(solo.effects)
    solo.part("overlay").surface.take(frozenset({ROOT}))
    solo.advance(2 * SECOND_NS)
    solo.link_up(7)
    assert solo.sent(GroupFind, to=7)[-1] == (7, GroupFind(5, pack(solo.part("overlay").surface.own), 1, ()))


@pytest.mark.parametrize(("reason", "said"), [("lost", "1"), ("unused", "33")])
def test_others_are_not_believed_for_a_while_about_a_node_without_a_link(reason: str, said: str):
    """A lost node manages nothing; one whose link was not needed manages what it said."""
    solo = member("0", {1: "1", 2: "2"}, check_s=1.0)
    surface = solo.part("overlay").surface
    solo.receive(1, GroupUpdate(pack_all(extents(said)), ()))
    solo.link_down(1, reason)
    rumour = GroupUpdate(pack_all(extents("2")), ((1, pack_all(extents("1"))),))
    solo.receive(2, rumour)
    assert 1 not in surface.neighbours
    solo.advance(11 * SECOND_NS)
    solo.receive(2, rumour)
    assert surface.neighbours[1] == extents("1")


def test_neighbours_that_manage_the_same_extents_are_told_of_each_other_once_per_check():
    solo = member("0", {1: "1", 2: "2"}, **TAKEOVER)
    solo.receive(2, GroupUpdate(pack_all(extents("2 11")), ()))
    for _ in range(10):
        solo.receive(1, GroupUpdate(pack_all(extents("1")), ()))
    solo.forget()
    solo.advance(SECOND_NS)
    entries = {to: frame.entries for to, frame in solo.sent(GroupUpdate)}
    assert len(solo.sent(GroupUpdate)) == 2
    assert entries == {1: ((2, pack_all(extents("2 11"))),), 2: ((1, pack_all(extents("1"))),)}


def test_pairs_of_nodes_that_manage_the_same_surface():
    regions = {1: extents("0 11"), 2: extents("1"), 3: extents("2"), 4: extents("110 2"), 5: extents("3")}
    assert overlapping(regions) == [(1, 2), (1, 4), (2, 4), (3, 4)]
