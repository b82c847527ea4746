"""Topo classes of Mininet and files of MiniEdit as underlays, and what is refused in them."""

import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.errors import ExperimentError
from harness.experiment.loader import decode_experiment
from harness.planning.underlays import MadeUnderlay, make_underlay
from topologies.importers import IMPORTERS, Options, TopoReference
from topologies.importers.imported import Imported
from topologies.link_graph import GraphLink, Paths
from topologies.reading import InputError

ROOT = Path(__file__).parents[2]
TOPOS = ROOT / "playbooks" / "experiments" / "topos.py"


def read(path: Path | None, topo: str, **options: Any) -> Imported:
    return IMPORTERS["mininet"].read(path, Options(topo=topo, **options))


def read_text(tmp_path: Path, body: str, topo: str = "T", **options: Any) -> Imported:
    """A class T whose ``build`` has these lines."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    path = tmp_path / "t.py"
    path.write_text(f"from mininet.topo import Topo\n\n\nclass T(Topo):\n    def build(self, n=2):\n{lines}\n")
    return read(path, topo, **options)


def link_options(tmp_path: Path, options: str) -> list[GraphLink]:
    """Both directions of a link from a host to a switch that has these options."""
    found = read_text(
        tmp_path,
        "s = self.addSwitch('s1')\n"
        f"self.addLink(self.addHost('h1'), s, {options})\n"
        "self.addLink(self.addHost('h2'), s)",
    )
    assert found.underlay.graph is not None
    return list(found.underlay.graph.links[:2])


def names(found: Imported) -> list[str]:
    return [host.name for host in found.underlay.hosts]


def test_hosts_at_one_switch() -> None:
    found = read(TOPOS, "SingleSwitch,3,delay=7ms")
    assert names(found) == ["h1", "h2", "h3"]
    assert found.underlay.delay_ms.tolist() == [[0, 14, 14], [14, 0, 14], [14, 14, 0]]
    assert found.regions == ("s1",) * 3
    assert found.provenance.sha256 == {"topos.py": hashlib.sha256(TOPOS.read_bytes()).hexdigest()}
    assert "topo: SingleSwitch,3,delay=7ms" in found.provenance.notes


def test_a_chain_of_switches() -> None:
    found = read(TOPOS, "line")
    assert names(found) == ["h1", "h2", "h3", "h4"]
    assert found.underlay.delay_ms.tolist() == [[3 * abs(a - b) for b in range(4)] for a in range(4)]


def test_hosts_do_not_forward(tmp_path: Path) -> None:
    """A host at two switches reaches the hosts at both, but these do not reach each other."""
    text = (
        "a, b, c = map(self.addHost, ('a', 'b', 'c'))\n"
        "s, t = map(self.addSwitch, ('s1', 's2'))\n"
        "for one, other in ((a, s), (b, s), (b, t), (c, t)):\n"
        "    self.addLink(one, other, delay='1ms')"
    )
    with pytest.raises(InputError, match=r"1 of 3 routers, such as c, do not reach the others"):
        read_text(tmp_path, text)
    found = read_text(tmp_path, text, missing="drop")
    assert names(found) == ["a", "b"]
    assert found.underlay.delay_ms.tolist() == [[0, 2], [2, 0]]


def test_a_tree() -> None:
    found = read(TOPOS, "Tree,2,fanout=2")
    assert names(found) == ["h1", "h2", "h3", "h4"]
    assert found.underlay.delay_ms[0].tolist() == [0, 4, 12, 12]
    assert found.underlay.graph is not None
    rates = {link.delay_ms: link.rate_mbit for link in found.underlay.graph.links}
    assert rates == {2.0: 100.0, 4.0: 50.0}


def test_a_torus_has_the_shortest_way_round() -> None:
    found = read(TOPOS, "Torus,4,3")
    assert len(names(found)) == 12
    for one, host in enumerate(found.underlay.hosts):
        for other, to in enumerate(found.underlay.hosts):
            (x, y), (to_x, to_y) = (map(int, name[1:].split("x")) for name in (host.name, to.name))
            steps = min((x - to_x) % 4, (to_x - x) % 4) + min((y - to_y) % 3, (to_y - y) % 3)
            assert found.underlay.delay_ms[one, other] == 2 * steps


def test_a_dumbbell_with_the_options_of_its_links() -> None:
    found = read(TOPOS, "Dumbbell,2,bw=5")
    assert names(found) == ["l1", "l2", "r1", "r2"]
    assert found.regions == ("s1", "s1", "s2", "s2")
    assert found.underlay.delay_ms[0].tolist() == [0, 2, 22, 22]
    assert found.underlay.delay_ms[2].tolist() == [32, 32, 0, 2]
    assert found.underlay.loss_ratio[0, 2] == pytest.approx(0.001)
    assert found.underlay.loss_ratio[2, 3] == pytest.approx(0.002 - 1e-6)
    assert found.underlay.jitter_ms[0, 2] == pytest.approx(1 / math.sqrt(3))
    graph = found.underlay.graph
    assert graph is not None
    slow = [link for link in graph.links if link.rate_mbit]
    assert [(graph.routers[link.source].name, link.delay_ms) for link in slow] == [("s1", 20), ("s2", 30)]
    assert {(link.rate_mbit, link.queue_ms) for link in slow} == {(5.0, 120.0)}  # 50 packets of 12,000 bits


@pytest.mark.parametrize(
    ("topo", "hosts", "farthest"),
    [
        ("minimal", 2, 2),
        ("single,5", 5, 2),
        ("reversed,3", 3, 2),
        ("linear,3,2", 6, 4),
        ("tree,depth=2,fanout=2", 4, 4),
        ("torus,3,3", 9, 4),
    ],
)
def test_mininets_own_topologies(topo: str, hosts: int, farthest: int) -> None:
    """Without delays, paths are those with the fewest links."""
    underlay = read(None, topo).underlay
    assert underlay.size == hosts
    assert not underlay.delay_ms.any()
    assert underlay.graph is not None
    paths = Paths(underlay.graph)
    assert max(len(paths.path(0, other)) for other in range(1, hosts)) == farthest


@pytest.mark.parametrize(("example", "topo", "hosts"), [("linuxrouter", "NetworkTopo", 3), ("multilink", None, 0)])
def test_examples_of_mininet(example: str, topo: str | None, hosts: int) -> None:
    """Routers of a class that is no Host only forward; a file without a Topo is refused by name."""
    import mininet.examples

    path = Path(mininet.examples.__path__[0]) / f"{example}.py"
    if topo is None:
        with pytest.raises(InputError, match="expected a Topo called T; found"):
            read(path, "T")
        return
    found = read(path, topo)
    assert names(found) == ["h1", "h2", "h3"][:hosts]
    assert found.underlay.graph is not None
    assert {router.name for router in found.underlay.graph.routers if router.forwards} == {"r0", "s1", "s2", "s3"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("delay='5ms'", {"delay_ms": 5.0}),
        ("delay='1s'", {"delay_ms": 1000.0}),
        ("delay='250us'", {"delay_ms": 0.25}),
        ("delay='1.5MSEC'", {"delay_ms": 1.5}),
        ("delay=1500", {"delay_ms": 1.5}),  # as tc: microseconds
        ("delay='2000'", {"delay_ms": 2.0}),
        ("delay=None, loss=0, bw=None", {}),
        ("delay='5ms', jitter='3ms'", {"delay_ms": 5.0, "jitter_ms": math.sqrt(3)}),
        ("loss=25", {"loss_ratio": 0.25}),
        ("loss=0.5", {"loss_ratio": 0.005}),
        ("bw=10, max_queue_size=100", {"rate_mbit": 10.0, "queue_ms": 120.0}),
        ("bw=0.5", {"rate_mbit": 0.5, "queue_ms": 24_000.0}),  # 1,000 packets
        ("bw=0.01", {"rate_mbit": 0.01, "queue_ms": 60_000.0}),  # the limit
        ("max_queue_size=9", {}),
    ],
)
def test_an_option_is_about_both_directions(tmp_path: Path, options: str, expected: dict[str, float]) -> None:
    for link in link_options(tmp_path, options):
        found = {name: getattr(link, name) for name in ("delay_ms", "jitter_ms", "loss_ratio", "rate_mbit", "queue_ms")}
        assert found == pytest.approx({**dict.fromkeys(found, 0.0), **expected})


def test_params_are_about_the_direction_that_leaves_a_node(tmp_path: Path) -> None:
    out, back = link_options(tmp_path, "params1={'delay': '1ms', 'bw': 4}, params2={'delay': '2ms'}, loss=10")
    assert (out.delay_ms, out.rate_mbit, out.loss_ratio) == (1.0, 4.0, 0.1)
    assert (back.delay_ms, back.rate_mbit, back.loss_ratio) == (2.0, 0.0, 0.1)
    out, back = link_options(tmp_path, "params1={'delay': '1ms'}, delay='9ms'")
    assert (out.delay_ms, back.delay_ms) == (9.0, 9.0)  # as in Mininet, the option for both wins


def test_what_has_no_effect_is_noted(tmp_path: Path) -> None:
    found = read_text(
        tmp_path,
        "s = self.addSwitch('s1')\n"
        "self.addLink(self.addHost('h1'), s, bw=1, use_htb=True, enable_red=True, delay=10)\n"
        "self.addLink(self.addHost('h2'), s, max_queue_size=5, params1={'speedup': 3})",
    )
    notes = found.provenance.notes
    assert "not used: use_htb: 2 directions of links" in notes
    assert "not used: enable_red: 2 directions of links" in notes
    assert "not used: speedup: 1 directions of links" in notes
    assert "not used: max_queue_size without bw: 2 directions of links" in notes
    assert "delay without a unit, in microseconds: 2 directions of links" in notes


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("bandwidth=10", "link h1 - s1: unknown option bandwidth; known are bw, delay, "),
        ("bw=0", "link h1 - s1: expected a bw from 0.001 to 1e+06, got 0"),
        ("bw='10'", "expected a bw from 0.001 to 1e+06, got '10'"),
        ("bw=True", "expected a bw"),
        ("bw=float('nan')", "expected a bw"),
        ("loss=100", "expected a loss from 0 to 99.9999, got 100"),
        ("loss='1%'", "expected a loss"),
        ("loss=-1", "expected a loss"),
        ("delay='5'+'m'", "expected a delay such as \"5ms\", got '5m'"),
        ("delay='soon'", "expected a delay"),
        ("delay=-5", "expected a delay"),
        ("delay='90s'", "expected a delay"),
        ("delay=True", "expected a delay"),
        ("jitter='1ms'", "expected a delay, since there is a jitter"),
        ("delay='1ms', jitter='x'", "expected a jitter"),
        ("max_queue_size=0, bw=1", "expected a max_queue_size from 1 to 1e+09, got 0"),
        ("params1=3", "expected options in params1, got 3"),
    ],
)
def test_an_option_that_is_none_is_refused(tmp_path: Path, options: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        link_options(tmp_path, options)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_odd_topologies_follow_the_rules_of_graphs(tmp_path: Path) -> None:
    found = read_text(
        tmp_path,
        "s = self.addSwitch('s1')\n"
        "self.addHost('a'); self.addHost('b')\n"
        "self.addLink('a', s, delay='9ms')\n"
        "self.addLink('a', s, delay='4ms')\n"
        "self.addLink(s, s)\n"
        "self.addLink('b', s)",
    )
    assert found.underlay.delay_ms.tolist() == [[0, 4], [4, 0]]
    assert "left out: 2 links from a router to itself" in found.provenance.notes
    assert any("2 links are parallel to others" in note for note in found.provenance.notes)
    twice = read_text(tmp_path, "self.addHost('a'); self.addHost('b'); self.addHost('a'); self.addLink('a', 'b')")
    assert names(twice) == ["a", "b"]  # as in Mininet


def test_a_network_in_parts_is_refused_or_its_largest_part_kept(tmp_path: Path) -> None:
    body = (
        "for part, size in (('x', 1), ('y', 3)):\n"
        "    s = self.addSwitch(f's{part}')\n"
        "    for number in range(size):\n"
        "        self.addLink(self.addHost(f'{part}{number}'), s, delay='1ms')"
    )
    with pytest.raises(InputError, match=r"1 of 4 routers, such as x0, do not reach the others.*missing = \"drop\""):
        read_text(tmp_path, body)
    found = read_text(tmp_path, body, missing="drop")
    assert names(found) == ["y0", "y1", "y2"]
    assert found.underlay.delay_ms[0].tolist() == [0, 2, 2]
    graph = found.underlay.graph
    assert graph is not None
    assert [router.name for router in graph.routers] == ["y0", "y1", "y2", "sy"]
    assert [graph.routers[router].name for router in found.underlay.routers] == names(found)


def test_no_path_leads_through_a_host(tmp_path: Path) -> None:
    body = (
        "s = [self.addSwitch(f's{number}') for number in range(3)]\n"
        "for number, name in enumerate('abc'):\n"
        "    self.addLink(self.addHost(name), s[number], delay='1ms')\n"
        "self.addLink('b', s[0]); self.addLink('b', s[2])\n"  # b has a link to every switch
        "self.addLink(s[0], s[1], delay='10ms'); self.addLink(s[1], s[2], delay='10ms')"
    )
    assert read_text(tmp_path, body).underlay.delay_ms.tolist() == [[0, 1, 22], [1, 0, 1], [22, 1, 0]]


@pytest.mark.parametrize(
    ("text", "topo", "problem"),
    [
        ("x = 1\nraise ValueError('no\\nway')\n", "T", "t.py:2: ValueError: no way"),
        ("import sys\nsys.exit(3)\n", "T", "t.py:2: SystemExit: 3"),
        ("class T(:\n", "T", "t.py:1: SyntaxError: invalid syntax"),
        ("import nothing_of_that_name\n", "T", "t.py:1: ModuleNotFoundError"),
        ("def T():\n    return 3\n", "T", "t.py: expected T to make a mininet.topo.Topo, got int"),
        ("T = 3\ntopos = {'t': list}\n", "T", "t.py: expected a Topo called T; found t"),
        ("def T(n):\n    pass\n", "T", "t.py: TypeError: T() missing 1 required positional argument: 'n'"),
        ("def T(n):\n    return 1 / n\n", "T,0", "t.py:2: ZeroDivisionError: division by zero"),
    ],
)
def test_what_fails_in_a_file_is_one_line(tmp_path: Path, text: str, topo: str, problem: str) -> None:
    (tmp_path / "t.py").write_text(text)
    path_before, modules_before = list(sys.path), set(sys.modules)
    with pytest.raises(InputError) as raised:
        read(tmp_path / "t.py", topo)
    assert str(raised.value).removeprefix(f"{tmp_path}/").startswith(problem)
    assert "\n" not in str(raised.value)
    assert sys.path == path_before
    assert set(sys.modules) == modules_before


def test_one_host_is_no_network(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected at least two routers with hosts"):
        read_text(tmp_path, "self.addLink(self.addHost('a'), self.addSwitch('s1'))")


def test_a_file_imports_its_neighbours_which_are_hashed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "print('hello')\nfrom parts import size\nfrom mininet.topo import SingleSwitchTopo\n"
    text += "def t(): return SingleSwitchTopo(size)\n"
    for folder, size in (("one", 2), ("two", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "parts.py").write_text(f"size = {size}\n")
        (tmp_path / folder / "t.py").write_text(text)
        found = read(tmp_path / folder / "t.py", "t")
        assert found.underlay.size == size
        files = {name: (tmp_path / folder / name).read_bytes() for name in ("t.py", "parts.py")}
        assert found.provenance.sha256 == {name: hashlib.sha256(text).hexdigest() for name, text in files.items()}
    assert "parts" not in sys.modules
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello\nhello\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mytopo.py:MyTopo", ("mytopo.py", "MyTopo")),
        ("a/b.py:T,3,n=x:y", ("a/b.py", "T,3,n=x:y")),
        ("tree,2,3", (None, "tree,2,3")),
    ],
)
def test_a_topology_is_named_with_its_file(text: str, expected: tuple[str | None, str]) -> None:
    assert tuple(TopoReference.parse(text)) == expected


def made(folder: Path, **underlay: Any) -> MadeUnderlay:
    document = {"name": "x", "protocol": "complete", "underlay": {"kind": "mininet", **underlay}}
    return make_underlay(decode_experiment(document), folder)


def test_a_topology_is_the_underlay_of_an_experiment() -> None:
    underlay, provenance = made(TOPOS.parent, topo="topos.py:Dumbbell")
    assert [host.name for host in underlay.hosts] == ["l1", "l2", "l3", "r1", "r2", "r3"]
    assert provenance is not None and "topos.py" in provenance.sha256
    sample = made(TOPOS.parent, topo="topos.py:Dumbbell,6", hosts=4).underlay
    assert sorted(host.name[0] for host in sample.hosts) == ["l", "l", "r", "r"]
    assert made(Path(), topo="tree,2,2", hosts=8).underlay.hosts[4].name == "h1 2"


def test_a_file_below_the_folder_of_data_needs_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not Mininet's own topology of that name."""
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    with pytest.raises(ExperimentError, match=r"\$.underlay.topo: the environment variable TRELLIS_DATA is not set"):
        made(Path(), topo="$TRELLIS_DATA/x.py:tree,2")


@pytest.mark.parametrize(
    ("underlay", "place", "problem"),
    [
        ({"kind": "mininet"}, "$.underlay.topo", 'missing: kind = "mininet" needs it'),
        ({"kind": "mininet", "topo": "tree", "path": "x"}, "$.underlay.path", "names its file in topo"),
        ({"kind": "miniedit"}, "$.underlay.path", 'missing: kind = "miniedit" needs it'),
        ({"kind": "uniform", "topo": "tree"}, "$.underlay.topo", 'kind = "uniform" does not use it'),
        ({"kind": "mininet", "topo": "my topo"}, "$.underlay.topo", "expected a string like"),
        ({"kind": "mininet", "topo": "x.py"}, "$.underlay.topo", "expected a string like"),
    ],
)
def test_keys_have_rules(underlay: dict[str, Any], place: str, problem: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        decode_experiment({"name": "x", "protocol": "complete", "underlay": underlay})
    assert (raised.value.path, problem in str(raised.value)) == (place, True)


MINIEDIT = {
    "application": {"ipBase": "10.0.0.0/8"},
    "controllers": [{"opts": {"hostname": "c0"}}],
    "hosts": [
        {"number": "1", "opts": {"hostname": "web", "nodeNum": 1, "sched": "host"}, "x": "1.0", "y": "2.0"},
        {"number": "2", "opts": {"nodeNum": 2}, "x": "1.0", "y": "2.0"},
    ],
    "links": [
        {"src": "web", "dest": "s1", "opts": {"bw": 10, "delay": "5ms", "loss": 1, "speedup": 7}},
        {"src": "s1", "dest": "h2", "opts": {}},
    ],
    "switches": [{"number": "1", "opts": {"hostname": "s1", "switchType": "legacyRouter", "controllers": []}}],
    "version": "2",
}


def test_a_file_of_miniedit_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.mn").write_text(json.dumps(MINIEDIT))
    underlay, provenance = made(tmp_path, kind="miniedit", path="a.mn")
    assert [host.name for host in underlay.hosts] == ["web", "h2"]
    assert (underlay.delay_ms[0, 1], underlay.loss_ratio[1, 0]) == (5.0, 0.01)
    assert underlay.graph is not None and underlay.graph.links[0].rate_mbit == 10.0
    assert provenance is not None and "not used: speedup: 2 directions of links" in provenance.notes


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hosts": [MINIEDIT["hosts"][0]] * 2}, "a.mn: two nodes have the same name"),
        ({"links": [{"src": "web", "dest": "s9"}]}, "a.mn: link web - s9: there is no host or switch s9"),
        ({"links": 3}, "a.mn: expected a file of MiniEdit: Expected `array`, got `int`"),
        ({"hosts": None}, "a.mn: expected a file of MiniEdit"),
    ],
)
def test_a_malformed_file_of_miniedit_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    (tmp_path / "a.mn").write_text(json.dumps({**MINIEDIT, **changes}))
    with pytest.raises(InputError) as raised:
        IMPORTERS["miniedit"].read(tmp_path / "a.mn", Options())
    assert problem in str(raised.value)


@pytest.mark.parametrize("topo", ["SingleSwitch", "Linear", "Tree", "Torus", "Dumbbell"])
def test_plan_prints_what_a_topology_has(topo: str, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = str(TOPOS.parent / "mininet.toml")
    assert cli.main(["plan", experiment, "--set", f'underlay.topo="topos.py:{topo}"', "--set", "random.degree=2"]) == 0
    said = capsys.readouterr().out
    assert f"latencies    topo: {topo}\n" in said
    assert "latencies    file: topos.py, SHA-256 " in said
    assert "latencies    graph: " in said


def test_import_writes_the_latencies_of_a_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m.json"
    assert cli.main(["import", "mininet", f"{TOPOS}:Linear,3", "--out", str(out)]) == 0
    assert "one-way delays in ms between 3 hosts" in capsys.readouterr().out
    assert IMPORTERS["mesh"].read(out, Options()).underlay.delay_ms[0].tolist() == [0, 3, 6]


def test_the_rate_of_a_link_is_its_own() -> None:
    """``link_rate_mbit`` is for links without ``bw``."""
    underlay = made(TOPOS.parent, topo="topos.py:Dumbbell,1", link_rate_mbit=100, link_queue_ms=9).underlay
    assert underlay.graph is not None
    rates = {(link.rate_mbit, link.queue_ms) for link in underlay.graph.links}
    assert rates == {(10.0, 60.0), (100.0, 9.0)}
