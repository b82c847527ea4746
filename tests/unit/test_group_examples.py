"""Every worked example in the text of Cutting, Landfeldt, Quigley, Implicit group messaging in peer-to-peer networks.

Each test quotes the place. Figures 4 and 5 show ways without addresses, so no test can repeat them.
"""

import pytest

from peer.core.addressing.expression import Attribute, ExpressionError, parse
from peer.protocols.implicit_groups.addressing.extent import AddressSpace, Extent
from peer.protocols.implicit_groups.addressing.geometry import centre
from peer.protocols.implicit_groups.addressing.region import Region, difference, hand_over, neighbours
from peer.protocols.implicit_groups.addressing.target import Target
from tests.group_network import Network

ROOT = Extent(2)


def extent(digits: str) -> Extent:
    return Extent.of_digits(digits, 2)


def extents(digits: str) -> Region:
    return frozenset(map(extent, digits.split()))


# Section 2.3: addresses and extents


@pytest.mark.parametrize(("dimensions", "digits"), [(2, "303222"), (3, "6352")])
def test_the_address_110011101010_in_two_and_three_dimensions(dimensions: int, digits: str):
    """Section 2.3: it "maps to the 2-dimensional quadtree address 303222", and "the 3-dimensional [...] 6352"."""
    assert str(AddressSpace(12, dimensions).extent(0b110011101010)) == digits


def test_addresses_are_padded_with_zeros():
    """Section 2.3: "d-bit segments (padded with 0s at the end if necessary)"."""
    assert [str(AddressSpace(4, dimensions).extent(0b1011)) for dimensions in (1, 2, 3)] == ["1011", "23", "54"]


def test_the_quadrants():
    """Section 2.3: "digit 0 to the top left quadrant [...], 1 to the top right, 2 to the bottom left and 3 to the
    bottom right". Coordinates are (to the right, down)."""
    assert [centre(part) for part in ROOT.split()] == [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)]


def test_the_sub_extents_of_1():
    """Section 2.3: "the four boxes labeled 10, 11, 12 and 13 in figure 2 are all sub-extents of the extent 1"."""
    assert frozenset(extent("1").split()) == extents("10 11 12 13")


def test_303222_lies_in_30():
    """Section 2.3: "the small black sub-extent of the extent labeled 30"."""
    assert extent("30").covers(extent("303222"))
    assert extent("303222").corner() == (0b101000, 0b101111)


def test_32_covers_321():
    """Section 2.3: "in figure 2, extent 32 covers extent 321, among others"."""
    assert extent("32").covers(extent("321"))
    assert not extent("321").covers(extent("32"))


def test_321_and_30_are_adjacent():
    """Section 2.3: "such as extents 321 and 30 in the figure", and extents that cover one another are not."""
    assert extent("321").adjacent(extent("30"))
    assert not extent("32").adjacent(extent("321"))


def test_the_difference():
    """Section 2.3: {0, 2} minus {20} is {0, 21, 22, 23}."""
    assert difference(extents("0 2"), extents("20")) == extents("0 21 22 23")


# Section 2.4: peers

FIGURE_2 = ("000000", "320320", "303222", "330000", "321000", *(f"{quadrant}00000"[:6] for quadrant in range(10, 14)))
FIGURE_2 += tuple(f"{quadrant}0000" for quadrant in range(20, 24))
"""Nodes at the figure's addresses and, for extents whose nodes the text does not name, at one in the extent."""

FIGURE_3 = ("2003", "0213", "0300", "0202", "2231", "3122", "2021", "2001", "2013")
"""Section 2.4: "a single peer with address 2003.... The next peer to join is 0213..., followed by 0300..."."""

STAGES_OF_FIGURE_3 = ("0", "03", "020", "22", "3", "202", "2001", "201")
"""What each newcomer gets by Algorithm 2: the largest extent around its address and not around the manager's."""

AFTER_FIGURE_3 = {
    "2003": "1 2000 2002 2003 203 21 23",
    "0213": "00 01 021 022 023",
    "0300": "03",
    "0202": "020",
    "2231": "22",
    "3122": "3",
    "2021": "202",
    "2001": "2001",
    "2013": "201",
}

NEIGHBOURS_AFTER_FIGURE_3 = {
    "2003": "0213 0300 0202 2231 3122 2021 2001 2013",
    "0213": "2003 0300 0202 2231 2001 2013",
    "0300": "2003 0213",
    "0202": "2003 0213",
    "2231": "2003 0213 3122 2021",
    "3122": "2003 2231 2021",
    "2021": "2003 2231 3122",
    "2001": "2003 0213 2013",
    "2013": "2003 0213 2001",
}
"""By hand, from the coordinates of these extents."""


def network_of(addresses: tuple[str, ...]) -> Network:
    """A node at each address. They join one after another, by frames; the first one manages the surface before."""
    bits = 2 * len(addresses[0])
    network = Network(
        [()] * len(addresses),
        seed=1,
        late=len(addresses) - 1,
        addresses=[extent(digits).path for digits in addresses],
        address_bits=bits,
        check_s=0,
    )
    for node in range(1, len(addresses)):
        network.join(node)
    network.assert_exact()
    return network


def test_320320_gives_away_30_33_and_321():
    """Section 2.4: it manages 320, 322, 323 and 31 "because the peers managing extents 30, 33 and 321 all joined the
    network after the peer 320320, which initially managed the entire extent 3"."""
    managed = extents("3")
    for newcomer in ("303222", "330000", "321000"):
        managed, given = hand_over(managed, extent("320320"), extent(newcomer))
        assert given in extents("30 33 321")
    assert managed == extents("320 322 323 31")


def test_the_neighbours_of_320320():
    """Section 2.4: "the neighbouring extents of the peer 320320 are 23, 30, 321, 33, 13, and since the surface is
    wrapped on all edges, also extents 10 and 20"."""
    own, others = extents("320 322 323 31"), extents("0 10 11 12 13 20 21 22 23 30 321 33")
    assert difference({ROOT}, own | others) == frozenset()
    assert neighbours(own, others) == extents("23 30 321 33 13 10 20")


def test_joins_by_frames_give_the_extents_and_the_neighbours_of_figure_2():
    network = network_of(FIGURE_2)
    surfaces = {address: network.overlay(node).surface for node, address in enumerate(FIGURE_2)}
    assert surfaces["320320"].extents == extents("320 322 323 31")
    assert surfaces["303222"].extents == extents("30")
    known = surfaces["320320"].neighbours
    assert neighbours(surfaces["320320"].extents, frozenset().union(*known.values())) == extents(
        "23 30 321 33 13 10 20"
    )
    assert {FIGURE_2[node][:2] for node in known} == {"23", "30", "32", "33", "13", "10", "20"}


def test_the_joins_of_figure_3_by_algorithm_2():
    managed = {"2003": frozenset({ROOT})}
    for newcomer, gets in zip(FIGURE_3[1:], STAGES_OF_FIGURE_3, strict=True):
        manager = next(peer for peer, mine in managed.items() if any(e.covers(extent(newcomer)) for e in mine))
        managed[manager], given = hand_over(managed[manager], extent(manager), extent(newcomer))
        assert given == extent(gets)
        managed[newcomer] = frozenset({given})
    assert managed == {address: extents(digits) for address, digits in AFTER_FIGURE_3.items()}


def test_joins_by_frames_give_the_extents_and_the_neighbours_of_figure_3():
    network = network_of(FIGURE_3)
    surfaces = {address: network.overlay(node).surface for node, address in enumerate(FIGURE_3)}
    assert {address: surface.extents for address, surface in surfaces.items()} == {
        address: extents(digits) for address, digits in AFTER_FIGURE_3.items()
    }
    known = {address: {FIGURE_3[node] for node in surface.neighbours} for address, surface in surfaces.items()}
    assert known == {address: set(nodes.split()) for address, nodes in NEIGHBOURS_AFTER_FIGURE_3.items()}


# Section 2.5: expressions and targets


def test_the_group_of_surgeons_or_doctors_with_dysphonia():
    """Section 2.5: "a peer with attributes doctor and dysphonia matches the expression (surgeon|doctor) & dysphonia,
    though a peer with only doctor does not"."""
    expression = parse("(surgeon|doctor) & dysphonia")
    assert expression.matches({"doctor", "dysphonia"})
    assert not expression.matches({"doctor"})


def test_the_expression_and_its_disjunction_are_equivalent():
    """Section 2.5.1: the two target "the same set of peers"."""
    one, other = parse("(surgeon|doctor) & dysphonia"), parse("(surgeon & dysphonia) | (dysphonia & doctor)")
    assert one.terms() == other.terms() == {frozenset({"surgeon", "dysphonia"}), frozenset({"doctor", "dysphonia"})}


def test_attributes_are_letters():
    """Section 2.5.1: ``attribute := [a-zA-Z]+``."""
    assert parse("doctorDysphonia") == Attribute("doctorDysphonia")
    for text in ("doctor1", "throat-infection", "!doctor"):
        with pytest.raises(ExpressionError, match="unexpected character"):
            parse(text)


PERMUTATIONS = [0b101101, 0b101111, 0b111101, 0b111111]
"""Section 2.5.2: "1?11?1 represents the address permutations 101101, 101111, 111101 and 111111"."""


def test_a_target_matches_an_address_with_all_bits_of_an_element():
    """Section 2.5.2: T matches p if some element te of T has te & p.addr = te; the extents that it matches follow."""
    target = Target(AddressSpace(6, 2), frozenset({0b101101}))
    assert [address for address in range(64) if target.matches(address)] == PERMUTATIONS
    assert target.expand({ROOT}, 100).extents == extents("231 233 331 333")
