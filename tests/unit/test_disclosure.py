"""The measure of what askers have concluded, against counting pairs one by one."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from metrics.measures.attacks import DISCLOSURE, Disclosure, measure_disclosure
from metrics.tables.disclosures import build_disclosures
from metrics.tables.traces import EVENTS
from peer.core.bitset import bitset

NODES, TOPICS = 8, 4
pairs = st.sets(st.tuples(st.integers(0, NODES - 1), st.integers(0, TOPICS - 1)))


def by_topic(some: set[tuple[int, int]]) -> dict[int, int]:
    return {topic: bitset(node for node, of in some if of == topic) for topic in {topic for _, topic in some}}


@given(pairs, st.dictionaries(st.integers(0, NODES - 1), pairs, max_size=3), st.sets(st.integers(0, NODES - 1)))
def test_each_asker_is_measured_by_honest_nodes_and_topics_that_it_never_had(subscribed, concluded, others):
    bad = others | concluded.keys()
    found = measure_disclosure(
        {asker: by_topic(said) for asker, said in concluded.items()}, by_topic(subscribed), sorted(bad)
    )
    expected = []
    for asker, said in sorted(concluded.items()):
        own = {topic for node, topic in subscribed if node == asker}
        true = {(node, topic) for node, topic in subscribed if node not in bad and topic not in own}
        meant = {(node, topic) for node, topic in said if node not in bad and topic not in own}
        expected.append(Disclosure(asker, len(true), len(true & meant), len(meant - true)))
    assert found == expected
    total = sum(row.subscriptions for row in found)
    share = sum(row.disclosed for row in found) / total if total else None
    assert DISCLOSURE.numbers(found) == {"disclosure_ratio": share}


def test_the_table_has_a_row_for_each_asker_and_none_without(tmp_path: Path):
    said = [("disclose", 3, 1, [5, 6]), ("disclose", 3, 2, [5]), ("disclose", 3, 0, [6]), ("join", 1, None, [5])]
    said.append(("disclose", 1, 2, [5]))  # a node that does not ask
    rows = [{"event": event, "node": node, "peer": peer, "topics": topics} for event, node, peer, topics in said]
    (tmp_path / "events").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, EVENTS), tmp_path / "events" / "part.parquet")
    held = [{"node": node, "topic": topic} for node, topic in [(1, 5), (1, 6), (2, 6), (4, 5), (3, 7), (2, 7)]]
    pq.write_table(pa.Table.from_pylist(held), tmp_path / "interests.parquet")
    places = (tmp_path / "events", tmp_path / "interests.parquet")
    assert build_disclosures(*places, frozenset(), frozenset({4})) == []
    assert build_disclosures(*places, frozenset({3, 4}), frozenset({3, 4})) == [
        {"node": 3, "subscriptions": 3, "disclosed": 2, "wrong": 2},
        {"node": 4, "subscriptions": 3, "disclosed": 0, "wrong": 0},
    ]
