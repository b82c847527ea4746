"""Pairs, meshes and the shipped matrix: what is read, what is assumed, what is refused, and what the plan records."""

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from harness.cli import main
from harness.experiment.abilities import refusals
from harness.experiment.form import Experiment, resolve
from harness.experiment.loader import decode_experiment, load_experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.planning import make_plan
from harness.planning.underlays import make_underlay
from topologies.importers import IMPORTERS, Options
from topologies.importers.imported import Imported
from topologies.reading import InputError

HOLES = "source,destination,rtt_ms\na,b,10\nb,a,30\nb,c,20\nc,b,20\nc,a,50\n"
"""Directed, without a -> c."""

SPARSE = "source,destination,rtt_ms\na,b,10\nb,a,12\nb,c,20\nc,b,26\n"
"""Without a - c in either direction."""


def read(tmp_path: Path, text: str, form: str = "pairs", **options) -> Imported:
    path = tmp_path / "data"
    path.write_text(text)
    return IMPORTERS[form].read(path, Options(**options))


@pytest.mark.parametrize("separator", [",", "\t", ";", " "])
def test_a_header_names_the_columns(tmp_path: Path, separator: str) -> None:
    rows = ("mdev_ms,dst,src,loss,rtt_ms", "2,b,a,0.19,10", "4,a,b,0,30")
    text = "# licence: CC0\n" + "\n".join(rows).replace(",", separator) + "\n"
    found = read(tmp_path, text)
    assert [host.name for host in found.underlay.hosts] == ["a", "b"]
    assert found.underlay.delay_ms.tolist() == [[0, 5], [15, 0]]
    assert found.underlay.jitter_ms == pytest.approx(np.array([[0, 2], [4, 0]]) / 2**0.5)
    assert found.underlay.loss_ratio == pytest.approx(np.array([[0, 0.1], [0, 0]]))  # 0.9 * 0.9 = 1 - 0.19
    assert found.provenance.licence == "CC0"
    assert found.provenance.sha256 == {"data": hashlib.sha256(text.encode()).hexdigest()}


def test_rows_without_a_header_need_to_be_told_what_their_times_are(tmp_path: Path) -> None:
    text = "0,1,10,1,0.5\n1,2,20\n"
    with pytest.raises(InputError, match=r':1: nothing says what the times are; set times = "rtt" or "one-way"'):
        read(tmp_path, text)
    with pytest.raises(InputError, match=":2: expected 5 cells, got 3"):
        read(tmp_path, text, times="one-way")
    found = read(tmp_path, "0,1,10,1,0.5\n1,0,20,,\n", times="one-way").underlay
    assert found.delay_ms.tolist() == [[0, 10], [20, 0]]
    assert found.jitter_ms.tolist() == [[0, 1], [0, 0]]
    assert found.loss_ratio.tolist() == [[0, 0.5], [0, 0]]


def test_a_row_is_about_both_directions_unless_one_pair_has_both(tmp_path: Path) -> None:
    once = "src,dst,rtt_ms\na,b,10\na,c,20\nc,b,30\na,a,1\n"
    found = read(tmp_path, once)
    assert found.underlay.delay_ms.tolist() == [[0, 5, 10], [5, 0, 15], [10, 15, 0]]
    assert "directions: each row is about both" in found.provenance.notes
    with pytest.raises(InputError, match="3 of 6 directed pairs have no time, such as b -> a"):
        read(tmp_path, once, directed=True)
    with pytest.raises(InputError, match=":3: another row for the pair b -> a"):
        read(tmp_path, HOLES, directed=False)


def test_missing_pairs_follow_the_rule_and_are_marked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='1 of 6 directed pairs have no time, such as a -> c; set missing = "reverse"'):
        read(tmp_path, HOLES)
    for rule in ("reverse", "relay"):
        found = read(tmp_path, HOLES, missing=rule).underlay
        assert found.delay_ms.tolist() == [[0, 5, 25], [15, 0, 10], [25, 10, 0]]
        assert found.filled.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    with pytest.raises(InputError, match=r"a -> c: measured in neither direction$"):
        read(tmp_path, SPARSE, missing="reverse")
    found = read(tmp_path, SPARSE, missing="relay").underlay
    assert found.delay_ms.tolist() == [[0, 5, 15], [6, 0, 10], [19, 13, 0]]
    assert found.filled.tolist() == [[0, 0, 2], [0, 0, 0], [2, 0, 0]]


def test_a_relay_combines_deviations_and_losses(tmp_path: Path) -> None:
    text = "src,dst,delay_ms,jitter_ms,loss_ratio\na,b,5,3,0.1\nb,a,5,3,0.1\nb,c,7,4,0.2\nc,b,7,4,0.2\n"
    found = read(tmp_path, text, missing="relay").underlay
    assert found.jitter_ms[0, 2] == pytest.approx(5)
    assert found.loss_ratio[0, 2] == pytest.approx(0.28)
    assert found.delay_ms[0, 2] == 12


def test_a_path_connects_hosts_that_no_relay_does(tmp_path: Path) -> None:
    chain = "source,destination,delay_ms\na,b,1\nb,c,2\nc,d,4\na,c,9\n"
    with pytest.raises(InputError, match=r"a -> d: measured in neither direction, nor over any relay$"):
        read(tmp_path, chain.replace("a,c,9\n", ""), missing="relay")
    found = read(tmp_path, chain, missing="path")
    assert found.underlay.delay_ms.tolist() == [[0, 1, 9, 7], [1, 0, 2, 6], [9, 2, 0, 4], [7, 6, 4, 0]]
    assert found.underlay.filled[0].tolist() == [0, 0, 0, 2]
    assert "filled: 0 pairs taken from the reverse direction, 4 estimated over a path" in found.provenance.notes
    with pytest.raises(InputError, match="a -> c: measured in neither direction, nor is there a path of"):
        read(tmp_path, "source,destination,delay_ms\na,b,1\nc,d,4\n", missing="path")


def test_dropping_leaves_the_hosts_without_missing_pairs(tmp_path: Path) -> None:
    found = read(tmp_path, HOLES, missing="drop")
    assert [host.name for host in found.underlay.hosts] == ["a", "b"]
    assert "dropped: 1 hosts with missing pairs (c)" in found.provenance.notes
    assert found.regions == ("", "")
    with pytest.raises(InputError, match="no two hosts stay"):
        read(tmp_path, "src,dst,rtt_ms\na,b,1\n", missing="drop", directed=True)


FAULTS = {
    "empty": ("", ": no rows"),
    "matrix": (",a,b\na,0,1\nb,1,0\n", ":1: no column is the source"),
    "json": ('{"nodes": []}', ": this is JSON, expected a list of pairs"),
    "word": ("src,dst,rtt_ms\na,b,fast\n", ":2:3: expected a number >= 0 and < 1e+09, got 'fast'"),
    "decimal_comma": (
        "src;dst;rtt_ms\na;b;12,5\n",
        ":2:3: expected a number >= 0 and < 1e+09, got '12,5'; write numbers with a decimal point",
    ),
    "decimal_comma_quoted": (
        'src,dst,rtt_ms\na,b,"12,5"\n',
        ":2:3: expected a number >= 0 and < 1e+09, got '12,5'; write",
    ),
    "nan": ("src,dst,rtt_ms\na,b,nan\n", ":2:3: expected a number"),
    "negative": ("src,dst,rtt_ms\na,b,-1\n", ":2:3: expected a number"),
    "all_lost": ("src,dst,rtt_ms,loss\na,b,1,1\n", ":2:4: expected a number >= 0 and < 1, got '1'"),
    "no_name": ("src,dst,rtt_ms\n,b,1\n", ":2: expected the names of two hosts"),
    "short": ("# x\n\nsrc,dst,rtt_ms\na,b\n", ":4: expected 3 cells, got 2"),
    "long": ("src,dst,rtt_ms\na,b,120001\n", ":2: expected a time in ms, at most 120,000, got 120001"),
    "long_way": ("src,dst,delay_ms\na,b,60001\n", ":2: expected a time in ms, at most 60,000, got 60001"),
    "repeated": ("src,dst,rtt_ms\na,b,1\na,b,1\n", ":3: another row for the pair a -> b"),
    "alone": ("src,dst,rtt_ms\na,a,1\n", ": expected at least two hosts with a time between them, got 1 hosts"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_malformed_pairs_are_refused_with_their_place(tmp_path: Path, case: str) -> None:
    text, problem = FAULTS[case]
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'data'}{problem}")


@pytest.mark.parametrize("separator", ["\t", ";"])
def test_rows_with_decimal_commas_are_no_header(tmp_path: Path, separator: str) -> None:
    with pytest.raises(InputError, match=r":1:3: .* got '12,5'; write numbers with a decimal point"):
        read(tmp_path, separator.join(("a", "b", "12,5")), times="rtt")


MESH = {
    "source": "own",
    "nodes": [
        {
            "num": 4,
            "name": "x",
            "country": "PT",
            "region": "EU",
            "latitude": 1.5,
            "longitude": -2,
            "other": 1,
            "up_mbit": 20,
            "down_mbit": 0.5,
        },
        {"num": 7, "upload_bw_mbps": 50, "download_bw_mbps": 50, "country": "US"},
    ],
    "edges": [{"source": 4, "target": 7, "latency_ms": 20}],
}


def test_a_mesh_keeps_what_is_known_of_its_nodes(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(MESH), "mesh")
    first, second = found.underlay.hosts
    assert (first.name, first.country, first.latitude, first.longitude) == ("x", "PT", 1.5, -2)
    assert (second.name, second.country, second.latitude) == ("host 7", "US", None)
    assert found.underlay.delay_ms.tolist() == [[0, 20], [20, 0]]
    assert found.underlay.rate_mbit.tolist() == [[20, 0], [0.5, 0]]
    assert found.regions == ("EU", "")
    assert found.provenance.source == "own"
    assert "upload_bw_mbps, download_bw_mbps: not used; read the file as ethp2p" in found.provenance.notes
    round_trips = json.dumps(MESH).replace("latency_ms", "rtt_ms")
    assert read(tmp_path, round_trips, "mesh").underlay.delay_ms[0, 1] == 10


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"edges": [{"source": 4, "target": 9, "latency_ms": 1}]}, ": edge 4 -> 9: no such node"),
        ({"edges": [{"source": 4, "target": 7}]}, ": edge 4 -> 7: expected latency_ms or rtt_ms"),
        ({"edges": []}, ": expected at least two hosts with a time between them"),
        ({"nodes": [{"num": 1}, {"num": 1}]}, ": two nodes have the same num"),
        ({"nodes": [{"num": 1, "name": "a"}, {"num": 2, "name": "a"}]}, ": two nodes have the same name"),
        (
            {"nodes": [{"num": 4}, {"num": 7, "up_mbit": 5, "down_mbit": 1e-4}]},
            ": node 7: expected a rate of 0 or at least 0.001 Mbit/s, got 0.0001",
        ),
        (
            {"nodes": [{"num": 1, "up_mbit": 1e7}]},
            ": expected a mesh of nodes and edges: Expected `float` <= 1000000.0",
        ),
        ({"nodes": 3}, ": expected a mesh of nodes and edges: Expected `array`, got `int` - at `$.nodes`"),
    ],
)
def test_malformed_meshes_are_refused(tmp_path: Path, change: dict, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, json.dumps(MESH | change), "mesh")
    assert str(caught.value).startswith(f"{tmp_path / 'data'}{problem}")


ETHP2P: dict[str, Any] = {
    "nodes": [
        {"num": 3, "upload_bw_mbps": 50, "download_bw_mbps": 100, "country": "portugal"},
        {"num": 0, "upload_bw_mbps": 1024, "download_bw_mbps": 1024, "country": "japan"},
        {"num": 8, "upload_bw_mbps": 0, "download_bw_mbps": 25, "country": "portugal"},
    ],
    "edges": [
        {"source": 3, "target": 0, "latency_ms": 128},
        {"source": 0, "target": 3, "latency_ms": 130},
        {"source": 8, "target": 3, "latency_ms": 2},
    ],
}
"""Of the pair 8 - 3 there is one edge, of the pair 8 - 0 none."""

COMPLETE = [*ETHP2P["edges"], {"source": 8, "target": 0, "latency_ms": 1}]


def test_a_topology_of_ethp2p_has_latencies_countries_and_rates(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 of 6 directed pairs have no time, such as host 0 -> host 8; set missing"):
        read(tmp_path, json.dumps(ETHP2P), "ethp2p")
    found = read(tmp_path, json.dumps(ETHP2P), "ethp2p", missing="path")
    assert found.underlay.delay_ms.tolist() == [[0, 128, 2], [130, 0, 132], [2, 130, 0]]
    assert found.underlay.filled.tolist() == [[0, 0, 0], [0, 0, 2], [0, 2, 0]]
    assert found.underlay.rate_mbit.tolist() == [[50, 1024, 0], [100, 1024, 25]]
    assert [(host.name, host.country) for host in found.underlay.hosts] == [
        ("host 3", "portugal"), ("host 0", "japan"), ("host 8", "portugal"),
    ]  # fmt: skip
    assert found.regions == ("portugal", "japan", "portugal"), "a sample is spread over the countries"
    assert found.provenance.sha256.keys() == {"data"}
    two = {"nodes": ETHP2P["nodes"][::-1], "edges": ETHP2P["edges"][:2]}
    dropped = read(tmp_path, json.dumps(two), "ethp2p", missing="drop").underlay
    assert dropped.rate_mbit.tolist() == [[1024, 50], [1024, 100]], "rates stay with their hosts"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"edges": [{"source": 3, "target": 9, "latency_ms": 1}]}, ": edge 3 -> 9: no such node"),
        ({"edges": [{"source": 9, "target": 3, "latency_ms": 1}]}, ": edge 9 -> 3: no such node"),
        ({"edges": ETHP2P["edges"] * 2}, ": edge 3 -> 0: another row for the pair host 3 -> host 0"),
        (
            {"edges": [{"source": 3, "target": 0, "latency_ms": 60_001}]},
            ": edge 3 -> 0: expected a time in ms, at most",
        ),
        (
            {"edges": [{"source": 3, "target": 0, "latency_ms": -1}]},
            ": expected a topology of ethp2p: Expected `float`",
        ),
        ({"edges": [{"source": 3, "target": 0}]}, ": expected a topology of ethp2p: Object missing required field"),
        ({"edges": []}, ": expected at least two hosts with a time between them"),
        ({"nodes": ETHP2P["nodes"] * 2}, ": two nodes have the same num"),
        ({"nodes": [{"num": 3}]}, ": expected a topology of ethp2p: Object missing required field `upload_bw_mbps`"),
        (
            {"nodes": [node | {"upload_bw_mbps": 1e-5} for node in ETHP2P["nodes"]], "edges": COMPLETE},
            ": node 3: expected a rate of 0 or at least 0.001 Mbit/s, got 1e-05",
        ),
    ],
)
def test_malformed_topologies_of_ethp2p_are_refused(tmp_path: Path, change: dict, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, json.dumps(ETHP2P | change), "ethp2p")
    assert str(caught.value).startswith(f"{tmp_path / 'data'}{problem}")


def test_an_experiment_on_a_topology_of_ethp2p(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "topology.json").write_text(json.dumps(ETHP2P))
    keys = {"kind": "ethp2p", "path": "topology.json", "missing": "path"}
    made = make_underlay(decode_experiment(document(**keys)), tmp_path).underlay
    assert (made.kind, made.rate_mbit.tolist()) == ("ethp2p", [[50, 1024, 0], [100, 1024, 25]])
    limited = make_underlay(decode_experiment(document(**keys, up_mbit=5)), tmp_path).underlay
    assert limited.rate_mbit.tolist() == [[5, 5, 5], [100, 1024, 25]]
    out = tmp_path / "mesh.json"
    argv = ["import", "ethp2p", str(tmp_path / "topology.json"), "--missing", "path", "--out", str(out)]
    assert main(argv) == 0
    assert "filled: 0 pairs taken from the reverse direction, 2 estimated over a path" in capsys.readouterr().out
    again = IMPORTERS["mesh"].read(out, Options()).underlay
    assert np.array_equal(again.delay_ms, made.delay_ms) and np.array_equal(again.rate_mbit, made.rate_mbit)


def test_the_shipped_matrix_is_the_published_file_with_its_licence() -> None:
    folder = files("topologies") / "data" / "measured_cities"
    digest = hashlib.sha256((folder / "wonderproxy.csv").read_bytes()).hexdigest()
    assert digest == "c33a0cf6a9c9e62503ec72f49bbf7a50b34feed56a85e75d5cab07a277ccb820"
    assert "John Ingve Olsen and Hans Erik Frøyland" in (folder / "LICENSE.relab-hotstuff").read_text()
    found = IMPORTERS["measured-cities"].read(None, Options())
    assert found.provenance.sha256 == {"wonderproxy.csv": digest}
    assert "MIT" in found.provenance.licence
    underlay = found.underlay
    names = [host.name for host in underlay.hosts]
    assert len(set(names)) == underlay.size == 217
    assert set(found.regions) == {"AF", "AS", "EU", "NA", "OC", "SA"}
    assert all(host.latitude is not None for host in underlay.hosts)
    melbourne, toronto, boston, dagupan = map(names.index, ("Melbourne", "Toronto", "Boston", "Dagupan"))
    assert underlay.rtt_ms[melbourne, toronto] == pytest.approx(218.592)
    assert np.array_equal(underlay.delay_ms, underlay.delay_ms.T)
    assert underlay.rtt_ms[boston, dagupan] > 50  # 0.1 ms in the file
    assert np.count_nonzero(underlay.filled) == 32  # 16 pairs
    assert not np.count_nonzero(underlay.delay_ms == 0) > underlay.size


def section(**keys: Any) -> Experiment:
    """An experiment with these keys of ``[underlay]``."""
    return Experiment(name="x", seed=1, underlay=UnderlaySpec(**keys))


def document(**keys: Any) -> dict[str, Any]:
    """The same as a document, for keys that are sections."""
    return {"name": "x", "seed": 1, "random": {"degree": 1}, "underlay": keys}


def test_a_sample_of_the_shipped_cities_touches_every_continent() -> None:
    underlay, provenance = make_underlay(section(kind="measured-cities", hosts=20), Path())
    again, _ = make_underlay(section(kind="measured-cities", hosts=20), Path())
    assert underlay.hosts == again.hosts
    whole = IMPORTERS["measured-cities"].read(None, Options())
    regions = dict(zip((host.name for host in whole.underlay.hosts), whole.regions, strict=True))
    assert len({regions[host.site] for host in underlay.hosts}) == 6
    assert provenance == whole.provenance


def test_measured_loss_and_jitter_reach_the_underlay_unless_overridden(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("src,dst,delay_ms,jitter_ms,loss_ratio\na,b,5,1,0.25\nb,a,5,2,0\n")
    spec = {"kind": "pairs", "path": "p.csv"}
    measured = make_underlay(section(**spec), tmp_path).underlay
    assert measured.loss_ratio.tolist() == [[0, 0.25], [0, 0]]
    assert measured.jitter_ms.tolist() == [[0, 1], [2, 0]]
    overridden = make_underlay(section(**spec, loss_ratio=0.5, jitter="none"), tmp_path).underlay
    assert overridden.loss_ratio.tolist() == [[0, 0.5], [0.5, 0]]
    assert not overridden.jitter_ms.any()


def test_rates_of_the_data_hold_where_the_experiment_sets_none(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(MESH))
    spec = {"kind": "mesh", "path": "m.json"}
    for keys, rates in (
        ({}, [[20, 0], [0.5, 0]]),
        ({"up_mbit": 3}, [[3, 3], [0.5, 0]]),
        ({"rate_mbit": 0}, [[0, 0], [0, 0]]),
        ({"links": ({"nodes": [1], "down_mbit": 7},)}, [[20, 0], [0.5, 7]]),
    ):
        assert make_underlay(decode_experiment(document(**spec, **keys)), tmp_path).underlay.rate_mbit.tolist() == rates
    queues = make_underlay(decode_experiment(document(**spec, queue_bytes=1000)), tmp_path).underlay.queue_ms
    assert queues.tolist() == [[0.4, 100], [16, 100]]  # 8,000 bits at 20 and 0.5 Mbit/s


def test_a_plan_says_whether_rates_are_those_of_the_data() -> None:
    """The plan of a network without data has the rate 0, whether the experiment sets it or not."""
    assert resolve(section(kind="uniform")) == resolve(section(kind="uniform", rate_mbit=0.0))
    assert resolve(section(kind="uniform"))["underlay"]["rate_mbit"] == 0.0
    assert resolve(section(kind="mesh", path="m"))["underlay"]["rate_mbit"] is None
    assert resolve(section(kind="mesh", path="m", rate_mbit=2.0))["underlay"]["rate_mbit"] == 2.0


def test_rates_of_the_data_do_not_keep_a_real_network_from_being_used() -> None:
    spec = UnderlaySpec(kind="mesh", path="m")
    assert not list(refusals(Experiment(name="x", testbed="remote", underlay=spec)))
    asked = Experiment(name="x", testbed="remote", underlay=replace(spec, rate_mbit=2.0))
    assert [place for place, _ in refusals(asked)] == ["$.underlay.rate_mbit"]


EXPERIMENT = 'name = "x"\n[underlay]\nkind = "{kind}"\n{keys}\n[random]\ndegree = 1\n'


def test_the_plan_records_and_prints_the_provenance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "# source: my lab\n# date: May 2024\n" + SPARSE
    (tmp_path / "p.csv").write_text(text)
    experiment = tmp_path / "x.toml"
    experiment.write_text(EXPERIMENT.format(kind="pairs", keys='path = "p.csv"\nmissing = "relay"'))
    planned = make_plan(load_experiment(experiment), experiment)
    provenance = planned.plan.provenance
    assert provenance is not None
    assert (provenance.source, provenance.date, provenance.licence) == ("my lab", "May 2024", "not stated")
    assert provenance.sha256 == {"p.csv": hashlib.sha256(text.encode()).hexdigest()}
    assert planned.underlay.sources == ("Latencies: my lab, May 2024",)
    assert main(["plan", str(experiment)]) == 0
    out = capsys.readouterr().out
    for line in (
        "tails        hosts with the largest median RTT (and its multiple of all pairs' median): c 28.5 ms (1.2x), ",
        "asymmetry    3 of 3 pairs; ",
        "detours      0.0% of the directed pairs are slower than over the best relay",
        "latencies    source: my lab; date: May 2024; licence: not stated",
        f"latencies    file: p.csv, SHA-256 {provenance.sha256['p.csv']}",
        "latencies    filled: 0 pairs taken from the reverse direction, 2 estimated over a relay",
    ):
        assert line in out


def test_a_generated_underlay_has_no_provenance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = tmp_path / "x.toml"
    experiment.write_text(EXPERIMENT.format(kind="uniform", keys="hosts = 3"))
    assert make_plan(load_experiment(experiment), experiment).plan.provenance is None
    assert main(["plan", str(experiment)]) == 0
    assert "\ndetours" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "keys", "problem"),
    [
        ("pairs", "", '$.underlay.path: missing: kind = "pairs" needs it'),
        ("mesh", "", '$.underlay.path: missing: kind = "mesh" needs it'),
        ("measured-cities", 'path = "x"', '$.underlay.path: kind = "measured-cities" reads no file'),
        ("matrix", 'path = "x"\nmissing = "relay"', '$.underlay.missing: kind = "matrix" does not use it'),
        ("uniform", "directed = true", '$.underlay.directed: kind = "uniform" does not use it'),
        ("world-cities", 'times = "rtt"', '$.underlay.times: kind = "world-cities" does not use it'),
    ],
)
def test_keys_that_a_kind_does_not_use_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, keys: str, problem: str
) -> None:
    experiment = tmp_path / "x.toml"
    experiment.write_text(EXPERIMENT.format(kind=kind, keys=keys))
    assert main(["check", str(experiment)]) == 2
    assert capsys.readouterr().err == f"trellis check: {experiment}: {problem}\n"


def test_import_writes_the_form_asked_for_and_says_what_it_cannot_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.csv").write_text("a,b,10,1\nb,a,20,1\n")
    argv = ["import", "pairs", str(tmp_path / "p.csv"), "--rtt", "--out"]
    assert main([*argv, str(tmp_path / "out.csv")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "jitter: not in a matrix file"
    assert (tmp_path / "out.csv").read_text() == ",a,b\na,0.0,5.0\nb,10.0,0.0\n"
    assert main([*argv, str(tmp_path / "out.txt"), "--to", "pairs"]) == 0
    assert (tmp_path / "out.txt").read_text() == (
        "source,destination,delay_ms,jitter_ms\na,b,5.0,0.707107\nb,a,10.0,0.707107\n"
    )
    assert main([*argv, str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["edges"][1] == {
        "source": 1, "target": 0, "latency_ms": 10.0, "jitter_ms": 0.707107,
    }  # fmt: skip
    assert main(["import", "measured-cities", "--out", str(tmp_path / "cities.csv")]) == 0
    out = capsys.readouterr().out
    assert "asymmetry: none" in out
    assert "countries and positions of hosts: not in a matrix file" in out
    assert (tmp_path / "cities.csv").read_text().startswith("# source: WonderNetwork")
