"""Addresses, extents, expressions and targets against brute force over the smallest cells of small trees."""

from itertools import combinations, product
from math import pi

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peer.core import bitset
from peer.core.addressing.expression import And, Attribute, Expression, ExpressionError, Or, parse
from peer.core.addressing.keywords import (
    check_keywords,
    covering_topics,
    find_members,
    keyword,
    keywords,
    terms_of_topics,
    topic_of,
)
from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.protocols.implicit_groups.addressing.clustering import cluster
from peer.protocols.implicit_groups.addressing.extent import AddressSpace, Extent
from peer.protocols.implicit_groups.addressing.geometry import angle, centre, distance, nearer, shortest, spans
from peer.protocols.implicit_groups.addressing.region import (
    difference,
    disjoint,
    hand_over,
    intersection,
    merge,
    neighbours,
)
from peer.protocols.implicit_groups.addressing.target import Target

DEPTH = {1: 5, 2: 3, 3: 2}
"""Dimensions -> the depth of the brute-force model's cells."""

DIMENSIONS = st.sampled_from(sorted(DEPTH))

Cell = tuple[int, ...]


def cells(extent: Extent) -> set[Cell]:
    """The coordinates of the cells in the extent, from its digits one by one."""
    lows, side = [0] * extent.dimensions, 1 << DEPTH[extent.dimensions]
    for digit in extent.digits:
        side //= 2
        lows = [low + side * (digit // 2**axis % 2) for axis, low in enumerate(lows)]
    return set(product(*(range(low, low + side) for low in lows)))


def surface(extents) -> set[Cell]:
    return {cell for extent in extents for cell in cells(extent)}


def faces(cell: Cell, dimensions: int) -> set[Cell]:
    """The cells that share a face with this one on the torus."""
    around = 1 << DEPTH[dimensions]
    return {
        tuple((c + step) % around if a == axis else c for a, c in enumerate(cell))
        for axis in range(dimensions)
        for step in (1, -1)
    }


@st.composite
def extent_of(draw, dimensions: int) -> Extent:
    depth = draw(st.integers(0, DEPTH[dimensions]))
    return Extent(dimensions, depth, draw(st.integers(0, (1 << depth * dimensions) - 1)))


EXTENT_PAIRS = DIMENSIONS.flatmap(lambda d: st.tuples(extent_of(d), extent_of(d)))
REGION_PAIRS = DIMENSIONS.flatmap(lambda d: st.tuples(*[st.frozensets(extent_of(d), max_size=8)] * 2))


def assert_disjoint(extents) -> None:
    assert not any(one.overlaps(other) for one, other in combinations(extents, 2))


@given(EXTENT_PAIRS)
def test_relations_of_two_extents(pair):
    one, other = pair
    mine, theirs = cells(one), cells(other)
    assert one.covers(other) == (theirs <= mine)
    assert one.overlaps(other) == bool(mine & theirs)
    borders = {face for cell in mine for face in faces(cell, one.dimensions)}
    assert one.adjacent(other) == other.adjacent(one) == (not mine & theirs and bool(borders & theirs))
    assert (other in set(one.ancestors())) == other.covers(one)
    if one < other:
        assert not other.covers(one)


@given(DIMENSIONS.flatmap(extent_of))
def test_a_split_is_a_partition(extent: Extent):
    parts = extent.split()
    assert_disjoint(parts)
    if extent.depth < DEPTH[extent.dimensions]:
        assert surface(parts) == cells(extent)
    assert list(parts) == sorted(parts)


@given(REGION_PAIRS)
def test_set_operations(pair):
    one, other = pair
    for result, expected in (
        (disjoint(one), surface(one)),
        (intersection(one, other), surface(one) & surface(other)),
        (difference(one, other), surface(one) - surface(other)),
    ):
        assert_disjoint(result)
        assert surface(result) == expected


@given(REGION_PAIRS)
def test_a_difference_divides_no_more_than_it_must(pair):
    one, other = pair
    for extent in difference(one, other):
        above = [a for a in extent.ancestors() if a != extent]
        if extent not in one:
            assert cells(above[0]) & surface(other)


@given(REGION_PAIRS)
def test_merged_extents_are_the_largest_of_their_surface(pair):
    region = disjoint(pair[0])
    merged = merge(region)
    assert_disjoint(merged)
    assert surface(merged) == surface(region)
    assert not any(extent.depth and set(extent.parent().split()) <= merged for extent in merged)
    root = Extent(next(iter(region)).dimensions) if region else Extent(2)
    assert merge(difference({root}, region) | region) == {root}


@given(REGION_PAIRS)
def test_neighbours(pair):
    own, others = pair
    assert neighbours(own, others) == {o for o in others for e in own if e.adjacent(o)}


@given(DIMENSIONS.flatmap(lambda d: st.tuples(st.just(d), st.data())))
def test_joins_keep_the_surface_partitioned(drawn):
    dimensions, data = drawn
    space = AddressSpace(DEPTH[dimensions] * dimensions, dimensions)
    addresses = st.integers(0, (1 << space.bits) - 1).map(space.extent)
    managed = {data.draw(addresses): frozenset({Extent(dimensions)})}
    for newcomer in data.draw(st.lists(addresses, max_size=10)):
        owner = next(peer for peer, mine in managed.items() if any(e.covers(newcomer) for e in mine))
        kept, given_away = hand_over(managed[owner], owner, newcomer)
        if newcomer == owner:
            assert (kept, given_away) == (managed[owner], None)
            continue
        assert given_away is not None
        assert given_away.covers(newcomer)
        assert any(e.covers(owner) for e in kept)
        larger = list(given_away.ancestors())[
            1:
        ]  # the largest one: each larger one has the owner or is not the owner's
        assert not larger or larger[0].covers(owner) or given_away in managed[owner]
        managed[owner], managed[newcomer] = kept, frozenset({given_away})
        everything = [e for mine in managed.values() for e in mine]
        assert_disjoint(everything)
        assert len(surface(everything)) == 1 << space.bits


# Expressions

NAMES = "abcdef"
EXPRESSIONS = st.recursive(
    st.sampled_from(NAMES).map(Attribute),
    lambda inner: st.builds(
        lambda kind, operands: kind(tuple(operands)),
        st.sampled_from([And, Or]),
        st.lists(inner, min_size=2, max_size=3),
    ),
    max_leaves=10,
)
PEERS = st.frozensets(st.sampled_from(NAMES))


def text_of(expression: Expression) -> str:
    if isinstance(expression, Attribute):
        return expression.name
    operator = " & " if isinstance(expression, And) else "|"
    return "(" + operator.join(map(text_of, expression.operands)) + ")"


def truth(expression: Expression, peer: frozenset[str]) -> bool:
    """Python's own evaluation of the text."""
    text = text_of(expression).replace("&", " and ").replace("|", " or ")
    return bool(eval(text, {name: name in peer for name in NAMES}))


@given(EXPRESSIONS, PEERS)
def test_expressions_against_direct_evaluation(expression: Expression, peer: frozenset[str]):
    assert parse(text_of(expression)) == expression
    expected = truth(expression, peer)
    assert expression.matches(peer) == expected
    terms = expression.terms()
    assert any(term <= peer for term in terms) == expected
    assert not any(one < other for one in terms for other in terms)


@given(st.lists(st.sampled_from([*"ab&|"]), min_size=1, max_size=12).map("".join), PEERS)
def test_precedence_against_direct_evaluation(text: str, peer: frozenset[str]):
    try:
        expression = parse(text)
    except ExpressionError:
        return
    names = {name: name in peer for name in text.replace("&", "|").split("|")}
    assert expression.matches(peer) == bool(eval(text.replace("&", " and ").replace("|", " or "), names))


@given(EXPRESSIONS, PEERS, st.integers(1, 12), st.integers(1, 4))
def test_an_address_that_satisfies_the_expression_is_in_the_target(expression, peer, bits, hashes):
    scheme = BloomScheme(bits, min(bits, hashes))
    target = Target.of(expression, scheme, 2)
    address = scheme.address(peer)
    if truth(expression, peer):
        assert target.matches(address)
    if target.matches(address):
        assert target.touches(target.space.extent(address))


@given(st.text(max_size=200) | st.text(alphabet="ab&|() ", max_size=200))
@example("(" * 100_000)
@example("(a|b)&" * 170 + "a")
@example("((a|b)&(c|d)|e)&" * 60 + "a")
@example("a|" * 511 + "a")
@example("|".join(f"{c}{d}" for c in "abcdefghijkl" for d in "abcdefghijkl"))
def test_hostile_expressions_give_an_error_with_a_position(text: str):
    try:
        parse(text).terms()
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
        assert str(error).endswith(f"at position {error.position}")


# Targets


@st.composite
def targets(draw) -> Target:
    bits, dimensions = draw(st.integers(1, 7)), draw(DIMENSIONS)
    return Target(AddressSpace(bits, dimensions), draw(st.frozensets(st.integers(0, (1 << bits) - 1), max_size=3)))


def addresses_in(target: Target, extent: Extent) -> set[int]:
    return {a for a in range(1 << target.space.bits) if extent.covers(target.space.extent(a))}


@given(targets(), st.data())
def test_targets_against_all_addresses(target: Target, data):
    depth = data.draw(st.integers(0, target.space.depth))
    extent = Extent(
        target.space.dimensions, depth, data.draw(st.integers(0, (1 << depth * target.space.dimensions) - 1))
    )
    inside = addresses_in(target, extent)
    assert target.touches(extent) == any(target.matches(a) for a in inside)
    assert target.fills(extent) == any(inside and all(e & a == e for a in inside) for e in target.elements)


@given(targets(), st.integers(0, 40))
def test_an_expansion_covers_the_target(target: Target, limit: int):
    root = Extent(target.space.dimensions)
    expansion = target.expand({root}, limit)
    assert_disjoint(expansion.extents)
    assert len(expansion.extents) <= max(limit, 1)
    covered = [addresses_in(target, extent) for extent in expansion.extents]
    matching = {a for a in range(1 << target.space.bits) if target.matches(a)}
    assert matching <= set().union(*covered)
    assert all(matching & part for part in covered)
    if expansion.exact:
        assert matching == set().union(*covered)
    assert target.expand({root}, 1 << 12).exact


@given(st.integers(0, (1 << 256) - 1), st.integers(1, 8), st.integers(0, 200))
def test_wildcards_everywhere_need_bounded_work(element: int, dimensions: int, limit: int):
    target = Target(AddressSpace(256, dimensions), frozenset({element, 1}))
    splits = 0

    class Counted(Target):
        def fills(self, extent: Extent) -> bool:
            nonlocal splits
            splits += 1
            return Target.fills(self, extent)

    expansion = Counted(target.space, target.elements).expand({Extent(dimensions)}, limit)
    assert len(expansion.extents) <= max(limit, 1)
    assert splits <= max(limit, 1) * (target.space.depth + 1)


@given(st.text(alphabet="abc", min_size=1), st.integers(1, 40), st.data())
def test_a_keyword_sets_exactly_k_positions(keyword: str, bits: int, data):
    hashes = data.draw(st.integers(1, bits))
    positions = BloomScheme(bits, hashes).positions(keyword)
    assert len(set(positions)) == hashes
    assert positions[0] >= 0
    assert positions[-1] < bits
    assert BloomScheme(bits, hashes).address([keyword]).bit_count() == hashes


@given(st.integers(1, 16), st.data())
def test_false_positive_rates_are_probabilities(bits: int, data):
    scheme = BloomScheme(bits, data.draw(st.integers(1, bits)))
    attributes, lacking = data.draw(st.integers(0, 10)), data.draw(st.integers(0, 5))
    rate = scheme.false_positive_rate(attributes, lacking)
    assert -1e-9 <= rate <= 1 + 1e-9
    assert scheme.false_positive_rate(attributes, lacking + 1) <= rate + 1e-9
    assert scheme.false_positive_rate(attributes + 1, lacking) >= rate - 1e-9


# Clusters


@given(
    DIMENSIONS.flatmap(lambda d: st.tuples(extent_of(d), st.frozensets(extent_of(d), max_size=10))),
    st.floats(0, 2 * pi),
)
def test_clusters_divide_the_extents_by_direction(drawn, phi: float):
    own, extents = drawn
    origin = centre(own)
    clusters = cluster(origin, extents, phi)
    assert sorted(e for members in clusters for e in members) == sorted(extents)
    ways = {e: shortest(origin, centre(e)) for e in extents}
    for members in clusters:
        assert members
        assert all(angle(ways[one], ways[other]) <= phi + 1e-7 for one, other in combinations(members, 2))
    if all(angle(ways[one], ways[other]) <= phi for one, other in combinations(extents, 2)):
        assert len(clusters) == (1 if extents else 0)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=2), st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_shortest_vectors(origin, goal):
    for component, start, end in zip(shortest(tuple(origin), tuple(goal)), origin, goal, strict=True):
        assert -0.5 <= component <= 0.5
        assert (start + component - end) % 1.0 == pytest.approx(0, abs=1e-9) or (
            start + component - end
        ) % 1.0 > 1 - 1e-9


# Keywords of topics


@given(st.integers(0, 2**32 - 1))
@example(0)
@example(25)
@example(26)
@example(701)
@example(702)
def test_a_keyword_names_one_topic_and_is_an_attribute_of_the_language(topic: int):
    assert topic_of(keyword(topic)) == topic
    assert parse(keyword(topic)) == Attribute(keyword(topic))


def test_keywords_are_counted_as_columns_of_a_spreadsheet():
    assert [keyword(topic) for topic in (0, 1, 25, 26, 27, 701, 702)] == ["a", "b", "z", "aa", "ab", "zz", "aaa"]
    assert keywords((0, 26)) == {"a", "aa"}


@pytest.mark.parametrize("word", ["", "A", "a b", "\xe9"])
def test_other_words_are_no_keywords(word: str):
    with pytest.raises(ValueError, match="is not a keyword"):
        topic_of(word)


EXPRESSIONS = st.recursive(
    st.sampled_from("abcdefg"),
    lambda inner: st.tuples(inner, st.sampled_from("&|"), inner).map(lambda parts: f"({''.join(parts)})"),
    max_leaves=8,
)


@given(EXPRESSIONS, st.lists(st.sets(st.integers(0, 7)), max_size=6))
def test_members_are_the_nodes_whose_keywords_satisfy_the_expression(text: str, nodes: list[set[int]]):
    subscribers = {
        topic: bitset.bitset(node for node, own in enumerate(nodes) if topic in own) for topic in set().union(*nodes)
    }
    found = set(bitset.members(find_members(text, subscribers)))
    assert found == {node for node, own in enumerate(nodes) if parse(text).matches(keywords(own))}
    topics = set(covering_topics(text))
    assert all(nodes[node] & topics for node in found)
    assert len(topics) <= len(terms_of_topics(text))


def test_a_term_is_covered_by_its_rarest_keyword():
    assert terms_of_topics("c&a|b&(a|z)") == (frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 25}))
    assert covering_topics("c&a|b&(a|z)|a&c") == (1, 2, 25)


@pytest.mark.parametrize(
    ("text", "position"), [("a&(b|z)", 5), ("a|A", 2), ("bB", 0), ("a|", 2), ("c&a&aa|zz", 4), ("a&zz&aa", 2)]
)
def test_the_first_attribute_that_is_no_keyword_is_refused_with_its_position(text: str, position: int):
    with pytest.raises(ExpressionError) as found:
        check_keywords(text, 5)
    assert found.value.position == position


def test_keywords_up_to_the_last_topic_are_accepted():
    check_keywords("e&(a|b)", 5)
    with pytest.raises(ExpressionError, match="'f' is not one of the keywords a to e at position 0"):
        check_keywords("f", 5)


DEEPEST = 5


def gap_and_tie(extent: Extent, goal: Extent) -> tuple[int, int]:
    """The squares of the distances to a goal and its centre, from all cells of the smallest size (2 units)."""
    around = 2 << DEEPEST
    between = tie = 0
    for low, start in zip(extent.corner(), goal.corner(), strict=True):
        length, goal_length = (2 << DEEPEST - each.depth for each in (extent, goal))
        own = range(low * length, (low + 1) * length + 1)
        ends = range(start * goal_length, (start + 1) * goal_length + 1)
        middle = start * goal_length + goal_length // 2

        def apart(one: int, other: int) -> int:
            return min((one - other) % around, (other - one) % around)

        between += min(apart(one, other) for one in own for other in ends) ** 2
        tie += min(apart(one, middle) for one in own) ** 2
    return between, tie


def cells_to(depth: int):
    return st.integers(0, depth).flatmap(
        lambda level: st.builds(Extent, st.just(2), st.just(level), st.integers(0, 4**level - 1))
    )


@given(cells_to(DEEPEST), st.lists(cells_to(DEEPEST), min_size=1, max_size=4), cells_to(DEEPEST))
def test_the_nearest_goal_is_found_if_it_is_nearer_than_a_known_one(extent: Extent, goals: list[Extent], known: Extent):
    all_far = [gap_and_tie(extent, goal) for goal in goals]
    assert [distance(extent, goal, DEEPEST) for goal in goals] == all_far
    best = gap_and_tie(extent, known)
    ends = [spans(goal, DEEPEST) for goal in goals]
    found = nearer(spans(extent, DEEPEST), ends, DEEPEST, best)
    assert found == (min(all_far) if min(all_far) < best else None)
