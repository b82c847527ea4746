"""Graphs as underlays: GraphML, GML and Rocketfuel's maps, and what becomes of odd ones."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiment.loader import decode_experiment
from harness.planning.underlays import make_network, make_underlay
from topologies.importers import IMPORTERS, Options, graph_files
from topologies.importers.graph_files import as_mbit, as_ms, name_routers
from topologies.importers.imported import Imported
from topologies.model import Underlay
from topologies.network import Network
from topologies.reading import InputError

GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="l"/>
  <key attr.name="Latitude" attr.type="double" for="node" id="y"/>
  <key attr.name="Longitude" attr.type="double" for="node" id="x"/>
  <key attr.name="Country" attr.type="string" for="node" id="c"/>
  <key attr.name="delay" attr.type="string" for="edge" id="d"/>
  <key attr.name="Network" attr.type="string" for="graph" id="n"/>
  <graph edgedefault="{directed}">
    <data key="n">Toy</data>
    {nodes}
    {edges}
  </graph>
</graphml>
"""


def graphml(nodes: dict[str, tuple[Any, ...]], edges: list[tuple[str, ...]], directed: str = "undirected") -> str:
    """A GraphML text; nodes: id -> label, latitude, longitude, country; edges: two ids, and a delay if it has any."""
    written = []
    for name, values in nodes.items():
        data = "".join(f'<data key="{key}">{value}</data>' for key, value in zip("lyxc", values, strict=False))
        written.append(f'<node id="{name}">{data}</node>')
    links = []
    for a, b, *delays in edges:
        data = "".join(f'<data key="d">{delay}</data>' for delay in delays)
        links.append(f'<edge source="{a}" target="{b}">{data}</edge>')
    return GRAPHML.format(directed=directed, nodes="\n".join(written), edges="\n".join(links))


PLACES = {"0": ("Here", 0.0, 0.0, "A"), "1": ("There", 0.0, 9.0, "A"), "2": ("Beyond", 0.0, 18.0, "B")}
"""Three routers on the equator, a thousand kilometres apart."""


def read(tmp_path: Path, form: str, text: str, **options: Any) -> Imported:
    path = tmp_path / "data"
    path.write_text(text, encoding="utf-8")
    return IMPORTERS[form].read(path, Options(**options))


def test_graphml_has_the_delays_of_light_in_fibre_along_its_links(tmp_path: Path) -> None:
    found = read(tmp_path, "graphml", graphml(PLACES, [("0", "1"), ("1", "2")]))
    assert [host.name for host in found.underlay.hosts] == ["Here", "There", "Beyond"]
    near_ms = 6371.0088 * np.deg2rad(9) / 200
    expected = near_ms * np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    assert found.underlay.delay_ms == pytest.approx(expected)
    assert found.regions == ("A", "A", "B")
    assert found.provenance.source == "Toy"
    assert "graph: 3 routers, 4 links (each direction counts), paths by delay" in found.provenance.notes


def test_a_link_of_graphml_may_have_a_delay_of_its_own(tmp_path: Path) -> None:
    text = graphml({name: values[:1] for name, values in PLACES.items()}, [("0", "1", "2 ms"), ("1", "2", "500 us")])
    assert read(tmp_path, "graphml", text).underlay.delay_ms.tolist() == [[0, 2, 2.5], [2, 0, 0.5], [2.5, 0.5, 0]]
    directed = graphml(PLACES, [("0", "1", "1 ms"), ("1", "2", "2 ms"), ("2", "0", "3 ms")], "directed")
    assert read(tmp_path, "graphml", directed).underlay.delay_ms.tolist() == [[0, 1, 3], [5, 0, 2], [3, 4, 0]]


@pytest.mark.parametrize("delay", ["soon", "5", "-3 ms", "99999 min"])
def test_a_delay_that_is_none_is_refused(tmp_path: Path, delay: str) -> None:
    with pytest.raises(InputError, match="edge 0: expected a delay that is a time such as") as raised:
        read(tmp_path, "graphml", graphml(PLACES, [("0", "1", delay), ("1", "2")]))
    assert repr(delay) in str(raised.value)


@pytest.mark.parametrize("delay", ["-1", "1e9"])
def test_a_number_of_ms_beyond_the_limits_is_refused(tmp_path: Path, delay: str) -> None:
    text = graphml(PLACES, [("0", "1", delay), ("1", "2")])
    text = text.replace('attr.name="delay" attr.type="string"', 'attr.name="delay_ms" attr.type="double"')
    with pytest.raises(InputError, match="edge 0: expected a delay_ms that is a number from 0 to 60,000"):
        read(tmp_path, "graphml", text)


def test_a_type_that_two_files_of_the_topology_zoo_name_is_read(tmp_path: Path) -> None:
    text = graphml(PLACES, [("0", "1"), ("1", "2")]).replace(
        'attr.type="string" for="node" id="c"', 'attr.type="integer" for="node" id="c"'
    )
    text = text.replace('<data key="c">A</data>', "").replace('<data key="c">B</data>', "")
    assert read(tmp_path, "graphml", text).underlay.size == 3


def test_routers_without_a_position_are_refused_or_dropped(tmp_path: Path) -> None:
    text = graphml(
        PLACES | {"3": ("Nowhere",), "4": ("Odd", 99.0, 0.0)}, [("0", "1"), ("1", "3"), ("1", "2"), ("2", "4")]
    )
    problem = '2 of 5 routers, such as Nowhere, have links without delay and no position; set missing = "drop"'
    with pytest.raises(InputError, match=problem):
        read(tmp_path, "graphml", text)
    found = read(tmp_path, "graphml", text, missing="drop")
    assert [host.name for host in found.underlay.hosts] == ["Here", "There", "Beyond"]
    assert "dropped: 2 routers without a position" in found.provenance.notes


def test_a_graph_in_parts_is_refused_or_its_largest_part_kept(tmp_path: Path) -> None:
    places = PLACES | {"3": ("Alone", 1.0, 1.0), "4": ("Beside", 2.0, 2.0)}
    text = graphml(places, [("3", "4"), ("0", "1"), ("1", "2")])
    with pytest.raises(InputError, match=r"2 of 5 routers, such as Alone, do not reach the others"):
        read(tmp_path, "graphml", text)
    found = read(tmp_path, "graphml", text, missing="drop")
    assert [host.name for host in found.underlay.hosts] == ["Here", "There", "Beyond"]
    assert found.regions == ("A", "A", "B")
    assert "dropped: 2 routers outside the largest connected part" in found.provenance.notes


def test_odd_links_and_names_follow_a_rule_that_is_said(tmp_path: Path) -> None:
    same = {name: ("Twin", *values[1:]) for name, values in PLACES.items()}
    text = graphml(same, [("0", "0"), ("0", "1", "9 ms"), ("0", "1", "4 ms"), ("1", "2", "1 ms")])
    found = read(tmp_path, "graphml", text)
    assert [host.name for host in found.underlay.hosts] == ["Twin", "Twin (2)", "Twin (3)"]
    assert found.underlay.delay_ms[0].tolist() == [0, 4, 5]
    notes = "\n".join(found.provenance.notes)
    assert "names: 2 routers have the name of another one, and got a number" in notes
    assert "left out: 2 links from a router to itself" in notes  # one in each direction
    assert "6 links (each direction counts), paths by delay; 2 links are parallel to others" in notes


def test_names_differ_whatever_the_file_has() -> None:
    notes: list[str] = []
    named = name_routers(["a", "a", "a (2)", "", "router 5", ""], notes)
    assert named == ["a", "a (3)", "a (2)", "router 3", "router 5", "router 5 (2)"]
    assert notes == ["names: 1 routers have the name of another one, and got a number"]
    assert max(map(len, name_routers(["a" * 200] * 12, []))) == 200


def name_slowly(names: list[str]) -> list[str]:
    """The first name that is free of a name, the name (2), the name (3), ..."""
    named: list[str] = []
    for number, name in enumerate(names):
        base = name[:190] or f"router {number}"
        free = {*names, *named}.isdisjoint
        is_first = name and name not in names[:number]
        tries = chain([base], (f"{base} ({copy})" for copy in count(2)))
        named.append(name if is_first else next(each for each in tries if free([each])))
    return named


@given(st.lists(st.sampled_from(["", "a", "a (2)", "a (3)", "b", "router 2", "c" * 190, "c" * 195]), max_size=12))
def test_names_are_those_of_a_slow_loop(names: list[str]) -> None:
    assert name_routers(names, []) == name_slowly(names)


def test_the_steps_to_name_routers_grow_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    routers = 2000
    steps = 0

    def count_steps(start: int) -> Iterator[int]:
        nonlocal steps
        for number in count(start):
            steps += 1
            yield number

    monkeypatch.setattr(graph_files, "count", count_steps)
    named = name_routers(["Springfield"] * routers, [])
    assert named == ["Springfield", *(f"Springfield ({number})" for number in range(2, routers + 1))]
    assert steps == routers - 1


@pytest.mark.data
@pytest.mark.long
def test_the_graphs_of_the_topology_zoo_are_read_as_docs_underlays_says(data_folder: Path) -> None:
    def ways(path: Path) -> str:
        for missing in ("refuse", "drop"):
            try:
                IMPORTERS["graphml"].read(path, Options(missing=missing))
            except InputError:
                continue
            return missing
        return "none"

    files = (data_folder / "topology-zoo" / "graphml").glob("*.graphml")
    assert Counter(map(ways, files)) == {"refuse": 75, "drop": 181, "none": 20}


GML = """graph [
  directed {directed}
  node [ id 0 label "Lisbon" host_bandwidth_up "100 Mbit" host_bandwidth_down "1 Gbit" ]
  node [ id 7 ]
  node [ id 9 ]
  edge [ source 0 target 7 latency "10 ms" packet_loss 0.5 ]
  edge [ source 7 target 9 latency "2500 us" packet_loss 0.5 jitter "3 ms" ]
  edge [ source 9 target 9 latency "1 ms" ]
  {more}
]
"""


def test_gml_has_latencies_losses_and_rates_of_hosts(tmp_path: Path) -> None:
    underlay = read(tmp_path, "gml", GML.format(directed=0, more="")).underlay
    assert [host.name for host in underlay.hosts] == ["Lisbon", "node 7", "node 9"]
    assert underlay.delay_ms.tolist() == [[0, 10, 12.5], [10, 0, 2.5], [12.5, 2.5, 0]]
    assert underlay.loss_ratio.tolist() == [[0, 0.5, 0.75], [0.5, 0, 0.5], [0.75, 0.5, 0]]
    assert underlay.jitter_ms.tolist() == [[0, 0, 3], [0, 0, 3], [3, 3, 0]]
    assert underlay.rate_mbit.tolist() == [[100, 0, 0], [1000, 0, 0]]


def test_a_directed_gml_is_read_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="do not reach the others in both directions"):
        read(tmp_path, "gml", GML.format(directed=1, more=""))
    back = 'edge [ source 9 target 0 latency "1 s" ]'
    assert read(tmp_path, "gml", GML.format(directed=1, more=back)).underlay.delay_ms[2].tolist() == [1000, 1010, 0]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('latency "10 ms"', "latency 10", r'edge Lisbon -> node 7: expected a latency with a unit, such as "10 ms"'),
        ('latency "10 ms"', "", "expected a latency with a unit.*got none"),
        ("packet_loss 0.5 ]", "packet_loss 1.5 ]", "expected a packet_loss from 0 to below 1, got 1.5"),
        ('"100 Mbit"', '"100 MB"', r'node Lisbon: expected a host_bandwidth_up such as "100 Mbit", got \'100 MB\''),
        ('jitter "3 ms"', 'jitter "3"', "expected a jitter with a unit.*got '3'"),
        ('jitter "3 ms"', 'jitter "99999 min"', "expected a jitter with a unit.*got '99999 min'"),
        ("packet_loss 0.5 ]", 'packet_loss "0.5" ]', "expected a packet_loss from 0 to below 1, got '0.5'"),
        ("graph [", "graph (", "expected GML"),
        ('"10 ms"', '"99999 min"', "delay_ms|expected"),
    ],
)
def test_what_is_wrong_in_gml_is_said_in_one_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as raised:
        read(tmp_path, "gml", GML.format(directed=0, more="").replace(old, new))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "ms", "mbit"),
    [
        ("10 ms", 10, None),
        ("2.5s", 2500, None),
        (f"{0.1 + 0.2} ms", 0.3, None),
        ("3 us", 0.003, None),
        ("1 Gbit", None, 1000),
        ("8 Kibit", None, 8 * 1024 / 1e6),
        ("10", None, None),
        ("ms", None, None),
        ("-1 ms", None, None),
        (10, None, None),
    ],
)
def test_quantities_have_units(text: object, ms: float | None, mbit: float | None) -> None:
    assert as_ms(text) == (None if ms is None else pytest.approx(ms))
    assert as_mbit(text) == (None if mbit is None else pytest.approx(mbit))


LATENCIES = """A,+X1 B,+X2 1
B,+X2 A,+X1 1
B,+X2 C,+Y3 1
C,+Y3 B,+X2 1
A,+X1 C,+Y3 9
C,+Y3 A,+X1 9
"""


def test_rocketfuel_goes_by_weights_where_there_are_any(tmp_path: Path) -> None:
    (tmp_path / "latencies.intra").write_text(LATENCIES)
    by_delay = IMPORTERS["rocketfuel"].read(tmp_path, Options())
    assert [host.name for host in by_delay.underlay.hosts] == ["A, X 1", "B, X 2", "C, Y 3"]
    assert [host.country for host in by_delay.underlay.hosts] == ["X", "X", "Y"]
    assert by_delay.regions == ("A, X", "B, X", "C, Y")
    assert by_delay.underlay.delay_ms[0].tolist() == [0, 1, 2]
    weights = LATENCIES.replace("9", "1")  # the direct link is the cheapest
    (tmp_path / "weights.intra").write_text(weights)
    by_weight = IMPORTERS["rocketfuel"].read(tmp_path, Options())
    assert by_weight.underlay.delay_ms[0].tolist() == [0, 1, 9]
    assert set(by_weight.provenance.sha256) == {"latencies.intra", "weights.intra"}
    assert any("paths by cost" in note for note in by_weight.provenance.notes)
    (tmp_path / "weights.intra").write_text("\n".join(reversed(weights.splitlines())))
    assert (
        IMPORTERS["rocketfuel"].read(tmp_path, Options()).underlay.delay_ms.tolist()
        == by_weight.underlay.delay_ms.tolist()
    )
    (tmp_path / "weights.intra").write_text(weights.splitlines()[0])
    with pytest.raises(InputError, match=r"latencies.intra:2: weights.intra has no link B,\+X2 A,\+X1"):
        IMPORTERS["rocketfuel"].read(tmp_path, Options())


@pytest.mark.parametrize("text", ["", "A B\n", "A B x\n", "A B -1\n", "A B 99999999\n", "A B 1 2\n"])
def test_what_is_no_map_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        read(tmp_path, "rocketfuel", text)


def test_an_experiment_runs_on_a_graph(tmp_path: Path) -> None:
    (tmp_path / "toy.graphml").write_text(graphml(PLACES, [("0", "1"), ("1", "2")]))
    underlay = {"kind": "graphml", "path": "toy.graphml", "hosts": 6}
    experiment = decode_experiment({"name": "x", "protocol": "random", "underlay": underlay})
    made = make_underlay(experiment, tmp_path)
    assert [host.site for host in made.underlay.hosts] == ["Here", "There", "Beyond"] * 2
    assert made.underlay.delay_ms[0, 3] == 2.0  # twice the access delay
    assert made.underlay.delay_ms[0, 4] == made.underlay.delay_ms[0, 1]


def test_links_of_a_graph_get_the_rate_and_the_queue_of_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "toy.graphml").write_text(graphml(PLACES, [("0", "1"), ("1", "2")]))
    underlay = {"kind": "graphml", "path": "toy.graphml", "link_rate_mbit": 10, "link_queue_ms": 50}
    experiment = decode_experiment({"name": "x", "protocol": "random", "underlay": underlay})
    made = make_underlay(experiment, tmp_path).underlay
    assert made.graph is not None
    assert {(link.rate_mbit, link.queue_ms) for link in made.graph.links} == {(10, 50)}
    network = Network.of(Underlay.from_json(b"".join(made.to_json())))
    assert len(network.bottlenecks) == 4
    assert [len(network.stops(0, host)) for host in range(3)] == [0, 1, 2]
    assert make_network(experiment, tmp_path).stops(0, 2) == network.stops(0, 2)


@pytest.mark.data
def test_graphs_of_real_networks_are_read(data_folder: Path) -> None:
    zoo = data_folder / "topology-zoo" / "graphml"
    for name, routers in {"Abilene": 11, "Geant2012": 37, "Cesnet200706": 38, "Aarnet": 19}.items():
        found = IMPORTERS["graphml"].read(zoo / f"{name}.graphml", Options(missing="drop"))
        assert found.underlay.size == routers
        assert 1 < found.underlay.delay_ms.max() < 60
    found = IMPORTERS["rocketfuel"].read(data_folder / "rocketfuel" / "1221", Options(missing="drop"))
    assert found.underlay.size == 104
