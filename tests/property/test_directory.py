"""A directory changed step by step is the one made afresh; the old one stays as it was."""

from hypothesis import given
from hypothesis import strategies as st

from peer.core.bitset import members
from peer.core.directory import Directory, PeerInfo

nodes = st.integers(0, 150)
interests = st.none() | st.frozensets(st.integers(0, 8)).map(sorted).map(tuple)
networks = st.dictionaries(nodes, interests, max_size=30)
changes = st.lists(st.dictionaries(nodes, interests | st.just("gone"), max_size=8), max_size=6)


def make(network: dict) -> Directory:
    return Directory(PeerInfo(node, topics) for node, topics in network.items())


def check(directory: Directory, network: dict) -> None:
    assert set(members(directory.nodes)) == set(network)
    assert len(directory) == len(network)
    assert directory.peers == tuple(PeerInfo(node, network[node]) for node in sorted(network))
    assert list(directory) == list(directory.peers)
    for node in range(152):
        assert directory.topics_of(node) == frozenset(network.get(node) or ())
        assert directory.discloses(node) == (network.get(node) is not None)
    for topic in range(10):
        expected = {node for node, topics in network.items() if topic in (topics or ())}
        assert set(members(directory.subscribers(topic))) == expected


@given(networks)
def test_a_directory_says_what_it_was_given(network: dict):
    check(make(network), network)


@given(networks, changes)
def test_every_change_gives_what_a_new_one_would_and_leaves_the_old_one(network: dict, steps: list[dict]):
    history = [(make(network), dict(network))]
    for step in steps:
        directory, network = history[-1][0], dict(history[-1][1])
        for node, topics in step.items():
            network.pop(node, None)
            if topics != "gone":
                network[node] = topics
        changed = directory.changed(
            {node: None if topics == "gone" else PeerInfo(node, topics) for node, topics in step.items()}
        )
        history.append((changed, network))
    for directory, network in history:
        check(directory, network)
        assert directory == make(network)
        assert hash(directory) == hash(make(network))


@given(networks, networks)
def test_directories_are_equal_when_their_entries_are(one: dict, other: dict):
    assert (make(one) == make(other)) == (one == other)
