"""What is read of a ``shadow.yaml``, and what is refused."""

import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from topologies.importers import IMPORTERS, Options
from topologies.reading import InputError
from topologies.shadow.form import Process, ShadowFile, read_shadow
from topologies.shadow.keys import SECTIONS, Ignored, Refused
from topologies.shadow.quantities import parse_rate_mbit, parse_signal, parse_time_ns
from topologies.shadow.texts import parse_yaml

PAGE = Path(__file__).parents[2] / "docs/shadow.md"

FILES = """
general:
  stop_time: 20s
  model_unblocked_syscall_latency: true   # a key of Shadow's own clock
network:
  graph:
    type: 1_gbit_switch
hosts:
  web:
    network_node_id: 0
    processes:
    - path: python3
      args: -m http.server 80
      start_time: 1 s
      expected_final_state: running
  reader1: &reader
    network_node_id: 0
    bandwidth_down: 10 Mbit
    processes:
    - path: curl
      args: --silent --user-agent 'Some (thing)' web
      start_time: 3
  reader2: *reader
"""
"""A server and two clients, in the manner of Shadow's first example."""

GRAPH = """
general: {stop_time: 1 min, seed: 7}
network:
  graph:
    type: gml
    inline: |
      graph [
        directed 0
        node [ id 3 label "here" host_bandwidth_up "20 Mbit" host_bandwidth_down "40 Mbit" ]
        node [ id 5 host_bandwidth_up "1 Gbit" host_bandwidth_down "1 Gbit" ]
        node [ id 8 ]
        edge [ source 3 target 3 latency "2 ms" packet_loss 0.0 ]
        edge [ source 3 target 5 latency "100 milliseconds" packet_loss 0.1 ]
        edge [ source 3 target 8 latency "10 ms" packet_loss 0.5 jitter "3 ms" ]
        edge [ source 8 target 5 latency "20 ms" packet_loss 0.0 ]
      ]
hosts:
  a: {network_node_id: 3, processes: []}
  b: {network_node_id: 3, bandwidth_up: 5 Mbit, processes: []}
  c: {network_node_id: 5, processes: []}
"""

ONE = """
general: {stop_time: 5}
network: {graph: {type: 1_gbit_switch}}
hosts:
  a:
    network_node_id: 0
    processes:
    - {path: "true"}
  b: {network_node_id: 0, processes: []}
"""


def read(folder: Path, text: str) -> ShadowFile:
    path = folder / "shadow.yaml"
    path.write_text(text)
    return read_shadow(path)


def underlay(folder: Path, text: str) -> Any:
    path = folder / "shadow.yaml"
    path.write_text(text)
    return IMPORTERS["shadow"].read(path, Options())


def test_a_server_and_its_clients_are_read(tmp_path: Path) -> None:
    found = read(tmp_path, FILES)
    assert (found.stop_ns, found.seed, found.shortest) == (20 * 10**9, 1, True)
    assert [host.name for host in found.hosts] == ["reader1", "reader2", "web"]
    reader, _, web = found.hosts
    assert web.processes == (Process("python3", ("-m", "http.server", "80"), start_ns=10**9, expected="running"),)
    assert reader.processes[0].args == ("--silent", "--user-agent", "Some (thing)", "web")
    assert reader.processes[0].start_ns == 3 * 10**9
    assert (reader.up_mbit, reader.down_mbit) == (None, 10.0)
    [remark] = found.remarks
    assert remark.startswith("general.model_unblocked_syscall_latency has no effect: programs run in real time")


def test_the_switch_has_a_gigabit_for_each_host(tmp_path: Path) -> None:
    found = underlay(tmp_path, FILES).underlay
    assert [host.name for host in found.hosts] == ["reader1", "reader2", "web"]
    assert found.delay_ms.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert found.rate_mbit.tolist() == [[1000, 1000, 1000], [10, 10, 1000]]


def test_packets_take_shortest_paths_and_loops_are_between_hosts_of_a_node(tmp_path: Path) -> None:
    found = underlay(tmp_path, GRAPH)
    assert found.underlay.delay_ms.tolist() == [[0, 2, 30], [2, 0, 30], [30, 30, 0]]
    assert found.underlay.loss_ratio.tolist() == [[0, 0, 0.5], [0, 0, 0.5], [0.5, 0.5, 0]]
    assert not found.underlay.jitter_ms.any()
    assert found.underlay.rate_mbit.tolist() == [[20, 5, 1000], [40, 40, 1000]]
    notes = "\n".join(found.provenance.notes)
    assert "paths: 2 of 2 links between nodes with hosts are longer than the shortest path" in notes
    assert "jitter: has no effect, as in Shadow" in notes
    assert "graph: 3 nodes, 2 of them with hosts" in notes


def test_without_shortest_paths_the_direct_link_is_taken(tmp_path: Path) -> None:
    direct = GRAPH.replace("network:\n", "network:\n  use_shortest_path: false\n")
    found = underlay(tmp_path, direct).underlay
    assert found.delay_ms.tolist() == [[0, 2, 100], [2, 0, 100], [100, 100, 0]]
    assert found.loss_ratio[0].tolist() == [0, 0, 0.1]
    with pytest.raises(InputError, match="no edge leads from here to node 5"):
        underlay(tmp_path, re.sub(r"edge \[ source 3 target 5.*\n", "", direct))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("edge [ source 3 target 3", "edge [ source 5 target 5", "no edge leads from here to here, expected one"),
        ("network_node_id: 5", "network_node_id: 4", r"hosts.c.network_node_id: the graph has no node 4"),
        ('host_bandwidth_up "20 Mbit"', "", "hosts.a.bandwidth_up: missing, and its node in the graph has none either"),
        ('"2 ms"', '"2 weeks"', "expected a latency with a unit"),
        ("graph [\n", "graph (\n", "expected GML"),
    ],
)
def test_a_graph_that_lacks_something_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    text = GRAPH.replace(old, new)
    assert text != GRAPH
    with pytest.raises(InputError, match=problem):
        underlay(tmp_path, text)


@pytest.mark.parametrize("packed", [False, True])
def test_a_graph_may_be_in_a_file(tmp_path: Path, packed: bool) -> None:
    graph = re.search(r"graph \[.*\n      \]", GRAPH, re.DOTALL)[0].encode()
    name = "g.gml.xz" if packed else "g.gml"
    (tmp_path / name).write_bytes(lzma.compress(graph) if packed else graph)
    more = ", compression: xz" if packed else ""
    text = re.sub(r"    inline: \|\n.*?\nhosts:", f"    file: {{path: {name}{more}}}\nhosts:", GRAPH, flags=re.DOTALL)
    found = underlay(tmp_path, text)
    assert found.underlay.delay_ms[0].tolist() == [0, 2, 30]
    assert set(found.provenance.sha256) == {"shadow.yaml", name}
    (tmp_path / name).write_bytes(b"\xfd7zXZ\x00nothing" if packed else b"\xff")
    with pytest.raises(InputError, match="cannot be unpacked" if packed else "not UTF-8 text"):
        underlay(tmp_path, text)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match="No such file"):
        underlay(tmp_path, text)


def test_processes_have_what_the_file_says(tmp_path: Path) -> None:
    process = """{path: ~/bin/x, args: [a, 'b c', ''], environment: {A: "1", B: x=y}, start_time: 1500 ms,
      shutdown_time: 2 s, shutdown_signal: 2, expected_final_state: {signaled: SIGINT}}"""
    found = read(tmp_path, ONE.replace('{path: "true"}', process)).hosts[0].processes[0]
    asked = Process(
        "~/bin/x",
        ("a", "b c", ""),
        {"A": "1", "B": "x=y"},
        1_500_000_000,
        2_000_000_000,
        "SIGINT",
        "signalled SIGINT",
    )
    assert found == asked


def test_paths_to_the_folder_of_the_data_are_remarked_on(tmp_path: Path) -> None:
    process = "{path: x, args: -c ../../../a.conf --in=../../../b x/../../../c ../../d}"
    found = read(tmp_path, ONE.replace('{path: "true"}', process))
    assert found.hosts[0].processes[0].args[1] == "../../../a.conf"
    assert found.remarks == ("../../../ in the args of 1 process stands for the folder of this file",)


def test_merge_keys_and_extensions_are_read(tmp_path: Path) -> None:
    text = """
x-parts:
  - &Node 0
  - &Slow {network_node_id: *Node, bandwidth_up: 1 Mbit, bandwidth_down: 1 Mbit}
  - &Slower {<<: *Slow, bandwidth_up: 64 Kbit}
general: {stop_time: 1h}
network: {graph: {type: 1_gbit_switch}}
hosts:
  a: {<<: *Slow, processes: [{path: x}]}
  b: {<<: *Slower, bandwidth_down: 2 Mbit, processes: []}
"""
    found = read(tmp_path, text)
    assert [(host.up_mbit, host.down_mbit) for host in found.hosts] == [(1, 1), (0.064, 2)]


REFUSED = {
    "no general": (ONE.replace("general:", "x-general:"), "general: missing"),
    "an unknown section": (ONE + "plugins: {}\n", "plugins: unknown key"),
    "a misspelt key": (ONE.replace("stop_time", "stop_tine"), "stop_tine: unknown key; did you mean stop_time?"),
    "an old key of a host": (
        ONE.replace("b: {", "b: {quantity: 3, "),
        "hosts.b.quantity: unknown key; Shadow 3 has no such key",
    ),
    "an old key of a process": (
        ONE.replace('{path: "true"}', '{path: "true", stop_time: 3}'),
        r"hosts.a.processes\[0\].stop_time: unknown key; Shadow 3 calls it shutdown_time",
    ),
    "bootstrapping": (
        ONE.replace("{stop_time: 5}", "{stop_time: 5, bootstrap_end_time: 2 s}"),
        "general.bootstrap_end_time: not possible here: rates and losses hold from the start",
    ),
    "a template": (
        ONE.replace("{stop_time: 5}", "{stop_time: 5, template_directory: t}"),
        "general.template_directory: not possible here: the folders of hosts are empty",
    ),
    "a queueing discipline": (
        ONE + "experimental: {interface_qdisc: round-robin}\n",
        "experimental.interface_qdisc: not possible here",
    ),
    "an unknown experiment": (ONE + "experimental: {use_magic: true}\n", "experimental.use_magic: unknown key"),
    "an address": (ONE.replace("b: {", "b: {ip_addr: 100.0.0.1, "), "hosts.b.ip_addr: not possible here: hosts get"),
    "a lone host": (ONE.replace("  b: {network_node_id: 0, processes: []}\n", ""), "hosts: expected from 2 to 10,000"),
    "a host twice": (ONE + "  a: {network_node_id: 0, processes: []}\n", "the key 'a' is there twice"),
    "a bad name": (ONE.replace("  b:", "  b_c:"), "hosts.b_c: expected a host name"),
    "a capital": (ONE.replace("  b:", "  B:"), "hosts.B: expected a host name"),
    "the loopback's name": (ONE.replace("  b:", "  localhost:"), "hosts.localhost: expected a host name"),
    "a number as a name": (ONE.replace("  b:", "  7:"), "hosts: expected texts as keys; put other keys in quotes"),
    "a late start": (ONE.replace('"true"', '"true", start_time: 5'), "start_time: expected a time before general"),
    "a shutdown before the start": (
        ONE.replace('"true"', '"true", start_time: 3, shutdown_time: 2'),
        "shutdown_time: expected a time after start_time and before general.stop_time, got 2",
    ),
    "a signal": (ONE.replace('"true"', '"true", shutdown_signal: TERM'), "expected a signal such as SIGTERM"),
    "a state": (
        ONE.replace('"true"', '"true", expected_final_state: {exited: 300}'),
        "expected running, {exited: STATUS} or {signaled: SIGNAL}, got keys and values",
    ),
    "no path": (ONE.replace('path: "true"', "args: x"), "path: expected a text, got nothing"),
    "a truth as a path": (ONE.replace('"true"', "true"), "path: expected a text, got true"),
    "numbers as arguments": (ONE.replace('"true"', '"true", args: [1]'), "args: expected a text or a list of texts"),
    "an open quote": (ONE.replace('"true"', '''"true", args: "a 'b"'''), "args: expected arguments as a shell"),
    "a number as a variable": (ONE.replace('"true"', '"true", environment: {A: 1}'), "environment.A: expected a text"),
    "a time without a unit": (ONE.replace("stop_time: 5", "stop_time: 5 parsecs"), 'expected a time such as "10 s"'),
    "a fraction": (ONE.replace("stop_time: 5", "stop_time: 1.5"), "general.stop_time: expected a time"),
    "no time": (ONE.replace("stop_time: 5", "stop_time: 0"), "general.stop_time: expected more than 0"),
    "a rate": (ONE.replace("b: {", "b: {bandwidth_up: 5 MB, "), "bandwidth_up: expected a rate such as"),
    "no rate": (ONE.replace("b: {", "b: {bandwidth_up: 0, "), "bandwidth_up: expected a rate such as"),
    "a seed": (ONE.replace("{stop_time: 5}", "{stop_time: 5, seed: -1}"), "general.seed: expected an integer from 0"),
    "a flag": (ONE.replace("network: {", "network: {use_shortest_path: 1, "), "expected true or false, got 1"),
    "a graph of another type": (ONE.replace("1_gbit_switch", "ring"), 'expected "gml" or "1_gbit_switch"'),
    "no graph": (ONE.replace("1_gbit_switch", "gml"), "network.graph: expected either file or inline"),
    "a list": ("[]", "the file: expected keys and values, got a list"),
    "nothing": ("", "the file: missing"),
    "no YAML": ("a: [", "shadow.yaml:1:"),
    "a tag": ("a: !!python/name:os.system", "could not determine a constructor"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_by_its_key(tmp_path: Path, case: str) -> None:
    text, problem = REFUSED[case]
    assert text != ONE
    with pytest.raises(InputError, match=problem if "\\" in problem else re.escape(problem)) as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)
    assert "shadow.yaml" in raised.value.place


def test_every_key_of_shadow_has_a_row_in_the_document() -> None:
    """Of a key that is used, has no effect or is refused, the page says which."""
    rows = dict(re.findall(r"^\| `([^`]*)` \| ([a-z ]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    expected = {
        f"{section}.{name}".lstrip("."): "no effect"
        if isinstance(rule, Ignored)
        else "refused"
        if isinstance(rule, Refused)
        else "used"
        for section, known in SECTIONS.items()
        for name, rule in known.items()
    }
    sections = {place for place in SECTIONS if place} | {"hosts"}
    assert {name: rule.strip() for name, rule in rows.items()} == {
        name: rule for name, rule in expected.items() if name not in sections
    }


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (5, 5 * 10**9),
        ("5", 5 * 10**9),
        ("10 min", 600 * 10**9),
        ("2hr", 7200 * 10**9),
        (" 7 microseconds ", 7000),
        ("3 \u03bcs", 3000),
        ("1 S", None),
        ("1.5 s", None),
        ("-1 s", None),
        ("", None),
        (True, None),
        (-1, None),
        (10**30, None),
        (None, None),
    ],
)
def test_times(value: object, ns: int | None) -> None:
    assert parse_time_ns(value) == ns


@pytest.mark.parametrize(
    ("value", "mbit"),
    [
        ("50 Mbit", 50),
        ("1 Gibit", 1073.741824),
        (8000, 0.008),
        ("64 kilobits", 0.064),
        ("5 MB", None),
        ("5 mbit", None),
    ],
)
def test_rates(value: object, mbit: float | None) -> None:
    assert parse_rate_mbit(value) == mbit


def test_signals() -> None:
    assert [parse_signal(each) for each in ("SIGKILL", 9, "KILL", 0, 34, True, None)] == [
        *("SIGKILL", "SIGKILL"),
        *[None] * 5,
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("~", None),
        ("", None),
        ("TRUE", True),
        ("=", "="),
        ('"5"', "5"),
        ("{a: &x [1], b: *x}", {"a": [1], "b": [1]}),
    ],
)
def test_plain_values_are_those_of_yaml_1_2(text: str, value: object) -> None:
    assert parse_yaml("f", text) == value
