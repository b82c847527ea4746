"""Views without links: what stays in them, what they forget, and the weights by which they choose."""

from hypothesis import given
from hypothesis import strategies as st

from peer.protocols.stan import aligned_views
from peer.protocols.stan.aligned_views import AlignedViews, weigh
from peer.testing import stored

nodes = st.sets(st.integers(0, 30), max_size=12)


def lightest(own: int, candidates: set[int], count: int) -> tuple[int, ...]:
    return tuple(sorted(sorted(candidates - {own}, key=lambda node: weigh(own, node))[:count]))


@given(nodes, st.lists(nodes, max_size=6), st.integers(0, 30))
def test_a_view_has_the_lightest_of_all_that_it_heard_of(first, replies, own):
    views = AlignedViews(own, [(7, first)])
    heard = set(first)
    for reply in replies:
        before = views[7]
        assert views.align(7, reply) == (views[7] != before)
        heard |= reply
        assert views[7] == lightest(own, heard, len(first - {own}) or 1)


@given(nodes, st.sets(st.integers(0, 30), max_size=5), nodes)
def test_who_is_gone_keeps_its_place_until_another_takes_it(first, gone, reply):
    views = AlignedViews(99, [(7, first)])
    for node in sorted(gone):
        assert views.miss(node, [7, 8]) == (node in first)
        assert not views.miss(node, [7])
    assert views[7] == tuple(sorted(first))
    assert set(views.present(7)) == first - gone
    assert {node for node in first if views.topics_of(node) == (7,)} == first - gone
    views.align(7, reply)
    assert len(views[7]) == (len(first) or min(len(reply), 1)), "one that was empty has room for one"
    taken = set(lightest(99, (first | reply) - (gone & first), len(first) or 1))
    assert set(views.present(7)) == taken
    assert set(views[7]) - taken <= gone
    for node in sorted(gone):
        missed = node in views[7] and node not in views.present(7)
        assert views.trust(node, [7, 8]) == missed
    assert set(views.present(7)) == set(views[7])


CHANGES = st.one_of(
    st.tuples(st.just("begin"), st.integers(1, 3), nodes),
    st.tuples(st.just("end"), st.integers(1, 3), st.just(set())),
    st.tuples(st.just("align"), st.integers(1, 3), nodes),
    st.tuples(st.just("miss"), st.integers(1, 3), nodes),
    st.tuples(st.just("trust"), st.integers(1, 3), nodes),
)


@given(st.lists(CHANGES, max_size=30))
def test_every_node_whose_topics_change_is_told_as_moved(changes):
    views = AlignedViews(0, [(1, {3, 4}), (2, {4, 5, 6})])
    used: dict[int, tuple[int, ...]] = {}
    for what, topic, of in changes:
        if what == "begin" and topic not in views:
            views.begin(topic, of)
        elif what == "end":
            views.end(topic)
        elif what == "align" and topic in views:
            views.align(topic, of)
        elif what in ("miss", "trust"):
            for node in sorted(of):
                getattr(views, what)(node, [1, topic])
        for node in views.take_moved():
            used[node] = views.topics_of(node)
        present = {topic: set(views.present(topic)) for topic in views.topics}
        for node in range(31):
            assert used.get(node, ()) == tuple(topic for topic in present if node in present[topic])


def test_weights_tell_names_apart_and_pairs_from_their_reverse():
    assert weigh(1, 23) != weigh(12, 3)
    assert weigh(1, 2) != weigh(2, 1)
    assert weigh(1, 2) == 0xF1A06D46872C9547, "no hash of the interpreter's, so it is the same in every process"


def test_weights_are_uniform_and_independent():
    ranks = [sorted(range(10), key=lambda node: weigh(own, node)).index(3) for own in range(100, 2100)]
    counts = [ranks.count(rank) for rank in range(10)]
    assert min(counts) > 150
    assert max(counts) < 250


def test_weights_are_forgotten_before_they_are_too_many(monkeypatch):
    monkeypatch.setattr(aligned_views, "KEPT_WEIGHTS", 8)
    views = AlignedViews(0, [(1, range(1, 4))])
    views.align(1, range(1, 100))
    assert max(len(one) for one in stored(views) if isinstance(one, dict)) <= 8
    assert views[1] == lightest(0, set(range(1, 100)), 3)
