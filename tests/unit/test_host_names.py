"""The hosts file that programs find."""

from peer.instances.spec import AgentSpec, ProcessSpec
from peer.runtime.names import describe_hosts, name_hosts, own_names


def hosts(*names: str) -> list[str]:
    addresses = tuple((f"10.0.0.{node + 1}", 9000) for node in range(len(names)))
    agent = AgentSpec("m", 1, (), addresses, 0, 0, 0, 0, 1.0, names=names)
    first, *lines = describe_hosts(agent).splitlines()
    assert first == "127.0.0.1 localhost"
    return lines


def test_a_node_has_its_number_and_its_place_as_names():
    assert hosts("São Paulo", "St. John's", "") == [
        "10.0.0.1 node0 sao-paulo",
        "10.0.0.2 node1 st-john-s",
        "10.0.0.3 node2",
    ]


def test_a_name_stands_for_one_node():
    assert hosts("Paris", "PARIS", "東京", "node0", "x" * 70) == [
        "10.0.0.1 node0 paris",
        "10.0.0.2 node1",
        "10.0.0.3 node2",
        "10.0.0.4 node3",
        f"10.0.0.5 node4 {'x' * 63}",
    ]


def test_hosts_with_processes_have_the_names_of_their_places_alone():
    """So that a host of Shadow that is called node1 is not taken for another one."""
    names = ("node1", "a.b", "node0", "São Paulo", "sao-paulo")
    addresses = tuple((f"10.0.0.{node + 1}", 9000) for node in range(len(names)))
    agent = AgentSpec(
        "m", 1, (), addresses, 0, 0, 0, 0, 1.0, names=names, processes=(ProcessSpec(0, "sh.1000", ("sh",)),)
    )
    assert own_names(agent) == ["node1", "a.b", "node0", "sao-paulo", "node4"]
    assert describe_hosts(agent).splitlines()[1:] == [
        "10.0.0.1 node1",
        "10.0.0.2 a.b",
        "10.0.0.3 node0",
        "10.0.0.4 sao-paulo",
        "10.0.0.5 node4",
    ]


def test_no_two_hosts_have_the_same_name():
    """The second one has the number of its place, which may be the name of another one."""
    assert name_hosts(["node1", "node1", "Node1!", "node3", "x-", "x"]) == [
        *("node1", "node1-2", "node2", "node3", "x-", "x"),
    ]
    assert name_hosts(["", "node0", "node1", "node1"]) == ["node0", "node1", "node2", "node3"]


def test_no_place_has_the_name_of_loopback():
    assert name_hosts(["localhost", "localhost"]) == ["node0", "node1"]
    assert hosts("localhost", "Localhost") == ["10.0.0.1 node0", "10.0.0.2 node1"]
