"""Addresses, extents, expressions and targets: single cases, bounds and errors."""

from math import pi, sqrt

import pytest

from peer.core.addressing import expression as language
from peer.core.addressing.expression import And, Attribute, ExpressionError, Or, parse
from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.protocols.implicit_groups.addressing.clustering import cluster
from peer.protocols.implicit_groups.addressing.extent import MAX_DIMENSIONS, AddressSpace, Extent
from peer.protocols.implicit_groups.addressing.geometry import angle, centre, distance, shortest
from peer.protocols.implicit_groups.addressing.region import difference, disjoint, hand_over, intersection
from peer.protocols.implicit_groups.addressing.target import Target


def extent(digits: str, dimensions: int = 2) -> Extent:
    return Extent.of_digits(digits, dimensions)


def extents(digits: str) -> frozenset[Extent]:
    return frozenset(map(extent, digits.split()))


ROOT = extent("")


# Section 2.3: addresses and extents


def test_an_address_that_is_no_multiple_of_the_dimensions_is_padded():
    space = AddressSpace(4, 3)
    assert (space.depth, space.padding) == (2, 2)


def test_covers():
    assert extent("32").covers(extent("32"))
    assert not extent("32").covers(extent("312"))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("32", "32", False),
        ("0", "3", False),  # they share corners only
        ("0", "1", True),
        ("00", "11", True),  # around the edge
        ("00", "22", True),
        ("00", "33", False),
        ("000", "022", False),  # apart
    ],
)
def test_adjacent(one: str, other: str, expected: bool):
    assert extent(one).adjacent(extent(other)) is expected
    assert extent(other).adjacent(extent(one)) is expected


def test_in_three_dimensions_a_common_edge_is_not_a_common_face():
    assert extent("0", 3).adjacent(extent("4", 3))
    assert not extent("0", 3).adjacent(extent("3", 3))


def test_set_operations_of_overlapping_arguments():
    assert disjoint(extents("0 03 031 2")) == extents("0 2")
    assert intersection(extents("0 21 3"), extents("01 02 2 30 303")) == extents("01 02 21 30")
    assert difference(extents("0 01"), extents("0 03")) == frozenset()
    assert difference(extents("01"), extents("2")) == extents("01")


def test_text_of_a_path_with_digits_above_nine():
    assert str(Extent(4, 2, 0xA3)) == "10.3"


@pytest.mark.parametrize("arguments", [(0,), (MAX_DIMENSIONS + 1,), (2, -1), (2, 1, 4), (2, 0, 1), (2, 1, -1)], ids=str)
def test_no_extent(arguments: tuple[int, ...]):
    with pytest.raises(ValueError):
        Extent(*arguments)


@pytest.mark.parametrize("digits", ["4", "1x", "-1", "²"])
def test_no_digits(digits: str):
    with pytest.raises(ValueError, match="not a digit of base 4"):
        extent(digits)


def test_extents_of_different_dimensions_do_not_mix():
    with pytest.raises(ValueError, match="2 and 3 dimensions"):
        ROOT.covers(extent("", 3))
    with pytest.raises(ValueError, match="2 and 3 dimensions"):
        extent("0").adjacent(extent("1", 3))


def test_an_address_space_refuses_what_it_does_not_have():
    space = AddressSpace(5, 2)
    assert [space.contains(e) for e in (ROOT, extent("000"), extent("0000"), extent("0", 3))] == [1, 1, 0, 0]
    for address in (-1, 32):
        with pytest.raises(ValueError, match="5 bits"):
            space.extent(address)
    for bits, dimensions in ((0, 2), (5, 0)):
        with pytest.raises(ValueError):
            AddressSpace(bits, dimensions)


# Section 2.4: peers


def test_a_cohabitant_gets_no_extent():
    assert hand_over({ROOT}, extent("20"), extent("20")) == (frozenset({ROOT}), None)


def test_a_newcomer_gets_the_whole_extent_that_is_not_around_the_peers_own_address():
    assert hand_over(extents("20 1"), extent("2003"), extent("1232")) == (extents("20"), extent("1"))


def test_space_that_the_peer_does_not_manage_is_not_handed_over():
    with pytest.raises(ValueError, match="no managed extent covers 1000"):
        hand_over(extents("2"), extent("2003"), extent("1000"))


# Section 2.5: expressions and targets

A, B, C = Attribute("a"), Attribute("b"), Attribute("c")


def test_and_binds_tighter_than_or():
    assert parse("a|b&c") == Or((A, And((B, C))))
    assert parse("b&c|a") == Or((And((B, C)), A))
    assert parse(" ( a | b ) & c ") == And((Or((A, B)), C))
    assert parse("a|b|c") == Or((A, B, C))


def test_terms_that_imply_another_are_left_out():
    assert parse("a|a&b|(a|c)&a").terms() == {frozenset("a")}


def test_case_matters():
    assert not parse("Doctor").matches({"doctor"})


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected an attribute or '(' at the end"),
        ("  ", 2, "expected an attribute or '(' at the end"),
        ("a&", 2, "expected an attribute or '(' at the end"),
        ("a & |b", 4, r"expected an attribute or '(' instead of '|'"),
        ("a b", 2, "expected an operator instead of 'b'"),
        ("a)", 1, "expected an operator instead of ')'"),
        ("()", 1, "expected an attribute or '(' instead of ')'"),
        ("a|(b&(c)", 8, "expected ')' for the '(' of position 2 at the end"),
        ("(a b)", 3, "expected ')' for the '(' of position 0 instead of 'b'"),
        ("ab&!c", 3, "unexpected character '!'"),
        ("a|\u00e9", 2, r"unexpected character '\xe9'"),
        ("a|\ud800", 2, r"unexpected character '\ud800'"),
        ("a\tb", 1, r"unexpected character '\t'"),
        ("a" * 1025, 1024, "more than 1024 characters"),
        ("(" * 33 + "a" + ")" * 33, 32, "more than 32 open parentheses"),
    ],
)
def test_errors_state_their_position(text: str, position: int, reason: str):
    with pytest.raises(ExpressionError) as error:
        parse(text)
    assert (error.value.reason, error.value.position) == (reason, position)
    assert str(error.value) == f"{reason} at position {position}"


def test_expressions_at_the_bounds():
    assert parse("a" * language.MAX_LENGTH) == Attribute("a" * 1024)
    assert parse("(" * 32 + "a" + ")" * 32) == A
    assert parse("&".join(["(a)"] * 100)).terms() == {frozenset("a")}  # closed parentheses do not count


def test_an_expression_with_too_many_terms():
    six = "&".join(f"({a}|{a}{a})" for a in "abcdef")
    assert len(parse(six).terms()) == language.MAX_TERMS
    for text, position in ((f"x|{six}&(g|h)", 2), (f"{six}|x", 0)):
        with pytest.raises(ExpressionError, match="more than 64 disjunctive terms") as error:
            parse(text).terms()
        assert error.value.position == position


def test_a_target_has_one_element_per_term():
    scheme = BloomScheme(32, 3)
    target = Target.of(parse("(a|b)&c"), scheme, 2)
    assert target.space == AddressSpace(32, 2)
    assert target.elements == {scheme.address("ac"), scheme.address("bc")}


def test_the_expansion_stops_where_an_element_has_only_wildcards():
    target = Target(AddressSpace(64, 2), frozenset({1 << 63}))
    expansion = target.expand({ROOT}, 100)
    assert (expansion.extents, expansion.exact) == (extents("2 3"), True)


def test_an_expansion_that_reaches_its_limit_covers_more():
    target = Target(AddressSpace(64, 2), frozenset({1}))  # 2 ** 63 addresses
    expansion = target.expand({ROOT}, 6)
    assert (expansion.extents, expansion.exact) == (extents("0 1 2 3"), False)
    assert target.expand(extents("0 1 2 3"), 0).extents == extents("0 1 2 3")


def test_an_expansion_reaches_its_limit_exactly_and_breadth_first():
    target = Target(AddressSpace(64, 2), frozenset({1}))
    assert target.expand({ROOT}, 4).extents == extents("0 1 2 3")
    assert target.expand({ROOT}, 10).extents == extents("00 01 02 03 10 11 12 13 2 3")


def test_an_expansion_of_overlapping_extents_is_disjoint():
    target = Target(AddressSpace(64, 2), frozenset({1}))
    assert target.expand(extents("3 30 301"), 1).extents == extents("3")


def test_a_chain_of_single_parts_does_not_count_against_the_limit():
    target = Target(AddressSpace(64, 2), frozenset({(1 << 64) - 1}))
    assert target.expand({ROOT}, 0) == target.expand({ROOT}, 100)
    assert target.expand({ROOT}, 0).extents == extents("3" * 32)


def test_a_target_refuses_foreign_extents_and_elements():
    target = Target(AddressSpace(4, 2), frozenset({1}))
    for foreign in (extent("000"), extent("0", 3)):
        with pytest.raises(ValueError, match="is not of"):
            target.expand({foreign}, 10)
    with pytest.raises(ValueError, match="4 bits"):
        Target(AddressSpace(4, 2), frozenset({16}))


# Bloom filters

POSITIONS = (20, 32, 43, 59)


def test_the_positions_of_a_keyword_are_fixed():
    """Peers of different versions must agree on them."""
    scheme = BloomScheme(64, 4)
    assert scheme.positions("doctor") == POSITIONS
    assert scheme.address(["doctor"]) == sum(1 << 63 - position for position in POSITIONS)
    assert scheme.address([]) == 0


def test_the_positions_of_a_keyword_depend_on_the_key():
    found = {BloomScheme(64, 4, key).positions("doctor") for key in ("", "1", "2")}
    assert len(found) == 3
    assert BloomScheme(64, 4, "1").positions("doctor") == BloomScheme(64, 4, "1").positions("doctor")


def test_a_keyword_can_set_all_positions():
    assert BloomScheme(5, 5).positions("x") == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(("bits", "hashes"), [(4, 0), (4, 5), (0, 0)])
def test_no_scheme(bits: int, hashes: int):
    with pytest.raises(ValueError, match="must be between"):
        BloomScheme(bits, hashes)


def test_false_positive_rates_by_hand():
    assert BloomScheme(10, 1).false_positive_rate(1, 1) == pytest.approx(0.1)
    assert BloomScheme(10, 1).false_positive_rate(2, 1) == pytest.approx(1 - 0.9**2)
    assert BloomScheme(10, 1).false_positive_rate(1, 2) == pytest.approx(0.1 * 0.1)  # both set the same position
    assert BloomScheme(4, 2).false_positive_rate(1, 1) == pytest.approx(1 / 6)
    assert BloomScheme(10, 2).false_positive_rate(0, 1) == 0
    assert BloomScheme(10, 2).false_positive_rate(3, 0) == 1


def test_false_positives_of_hashed_keywords_have_the_rate_of_the_theory():
    scheme, trials = BloomScheme(24, 2), 4000
    hits = 0
    for trial in range(trials):
        address = scheme.address(f"{trial}/{number}" for number in range(6))
        element = scheme.address([f"{trial}/x", f"{trial}/y"])
        hits += element & address == element
    rate = scheme.false_positive_rate(6, 2)
    assert 0.01 < rate < 0.1
    assert abs(hits / trials - rate) < 4 * sqrt(rate * (1 - rate) / trials)


# Geometry and clusters


def test_shortest_vectors_go_around_the_torus():
    assert shortest((0.125, 0.5), (0.875, 0.75)) == (-0.25, 0.25)
    assert shortest((0.75,), (0.25,)) == (0.5,)  # both ways are equally long
    assert shortest((0.25,), (0.75,)) == (0.5,)


def test_distances():
    """Squared, in sixteenths of the side: between the nearest points, and from the goal's centre."""
    assert distance(extent("00"), extent("11"), 3) == (0, 2**2)
    assert distance(extent("00"), extent("03"), 3) == (0, 2**2 + 2**2)
    assert distance(extent("00"), extent("30"), 3) == (4**2 + 4**2, 6**2 + 6**2)
    assert distance(extent("000"), extent("01"), 3) == (2**2, 4**2)
    assert distance(extent("0"), extent("00"), 3) == distance(extent("00"), extent("0"), 3) == (0, 0)


def test_angles():
    assert angle((1, 0), (0, 3)) == pytest.approx(pi / 2)
    assert angle((1, 0), (-2, 0)) == pytest.approx(pi)
    assert angle((0.1, 0.3), (0.1, 0.3)) == 0
    assert angle((0, 0), (1, 0)) == 0


def test_a_cast_branches_where_directions_differ():
    origin = (0.5, 0.5)
    north, south_east, east, south_west = map(extent, ("100", "300", "310", "211"))
    everything = [south_west, east, north, south_east]
    assert cluster(origin, everything, pi) == ((north, south_west, south_east, east),)
    # the angles: from north to south-west 143 degrees (the widest), to east 93, south-east 127; east to south-east 34
    assert cluster(origin, everything, 2.0) == ((north, east), (south_west, south_east))
    assert cluster(origin, everything, 1.0) == ((north,), (south_west,), (south_east,), (east,))
    assert len(cluster(origin, everything, 0.0)) == 4
    assert cluster(origin, [], 1.0) == ()


def test_extents_in_one_direction_need_one_message():
    assert cluster((0.5, 0.5), extents("300 303 3"), 1e-9) == ((extent("3"), extent("300"), extent("303")),)


def test_an_extent_halfway_goes_to_the_lower_of_the_two_that_differ_most():
    assert cluster((0.5, 0.5), extents("1 2 3"), 2.0) == (tuple(map(extent, "13")), (extent("2"),))


def test_a_branch_factor_that_an_angle_reaches_does_not_divide():
    origin, east, south = (0.5, 0.5), extent("300"), extent("211")
    apart = angle(shortest(origin, centre(east)), shortest(origin, centre(south)))
    assert len(cluster(origin, [east, south], apart)) == 1
    assert len(cluster(origin, [east, south], apart - 1e-9)) == 2


@pytest.mark.parametrize("phi", [-0.1, 2 * pi + 0.1, float("nan")])
def test_no_branch_factor(phi: float):
    with pytest.raises(ValueError, match="branch factor"):
        cluster((0.5, 0.5), extents("0 1"), phi)
