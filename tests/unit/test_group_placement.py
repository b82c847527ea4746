"""Implicit groups: what the plan gives the nodes."""

import msgspec

from peer.core.addressing.keywords import keywords
from peer.protocols.description import FirstNetwork
from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.protocols.implicit_groups.encoding import unpack
from peer.protocols.implicit_groups.parameters import ImplicitGroupsParameters, PlacedImplicitGroupsParameters
from peer.protocols.implicit_groups.placement import draw_initial_state

TOPICS = [(number, number + 1) for number in range(12)]


def place(seed: int, up: list[bool], **parameters: object) -> list[PlacedImplicitGroupsParameters]:
    chosen = ImplicitGroupsParameters(start="placed", **parameters)
    given = draw_initial_state(FirstNetwork(TOPICS, up, seed), chosen)
    plain = msgspec.to_builtins(chosen)
    return [msgspec.convert(plain | each, PlacedImplicitGroupsParameters) for each in given]


def test_with_a_keyed_hash_all_nodes_have_the_seed_as_key_and_are_placed_by_it() -> None:
    addresses = []
    for seed in (1, 2):
        placed = place(seed, [True] * 11 + [False], keyed_hash=True)
        assert [each.hash_key for each in placed] == [str(seed)] * 12
        scheme = BloomScheme(64, 2, str(seed))
        addresses.append([scheme.address(keywords(topics)) for topics in TOPICS])
        assert [
            each.scheme.address(keywords(topics)) for each, topics in zip(placed, TOPICS, strict=True)
        ] == addresses[-1]
        for each, address in zip(placed[:11], addresses[-1], strict=False):
            own = each.space.extent(address)
            assert any(unpack(bytes.fromhex(text), each.space).covers(own) for text in each.extents)
    assert addresses[0] != addresses[1]


def test_without_it_there_is_no_key_and_addresses_do_not_depend_on_the_seed() -> None:
    one, other = (place(seed, [True] * 12) for seed in (1, 2))
    assert {each.hash_key for each in one + other} == {""}
    assert one[0].scheme == other[0].scheme == BloomScheme(64, 2)
