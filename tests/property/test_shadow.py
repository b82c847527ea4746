"""Files of Shadow: what is written reads back, any graph gives the delays of Shadow's rules, any text one error."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.runtime.names import name_hosts
from tests.examples import examples
from topologies.importers import IMPORTERS, Options
from topologies.reading import InputError
from topologies.shadow.form import Process, read_shadow
from topologies.shadow.keys import SECTIONS
from topologies.shadow.quantities import SIGNALS, parse_rate_mbit, parse_time_ns, write_rate, write_time

STOP_NS = 3600 * 10**9

letters = st.characters(exclude_categories=("Cc", "Cs", "Cn", "Zl", "Zp"), exclude_characters="\ufeff")
words = st.text(letters, max_size=12).filter(lambda word: "../" not in word)
names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}(\.[a-z0-9-]{1,3})?", fullmatch=True).filter("localhost".__ne__)
instants = st.integers(0, STOP_NS - 1)


@st.composite
def processes(draw: st.DrawFn) -> Process:
    start_ns, later_ns = sorted(draw(st.lists(instants, min_size=2, max_size=2, unique=True)))
    states = st.one_of(
        st.just("running"),
        st.integers(0, 255).map("exited {}".format),
        st.sampled_from(sorted(SIGNALS)).map("signalled {}".format),
    )
    return Process(
        path=draw(words.filter(bool)),
        args=tuple(draw(st.lists(words, max_size=3))),
        environment=draw(st.dictionaries(words.filter(lambda name: name and "=" not in name), words, max_size=2)),
        start_ns=start_ns,
        shutdown_ns=draw(st.sampled_from([None, later_ns])),
        shutdown_signal=draw(st.sampled_from(sorted(SIGNALS))),
        expected=draw(states),
    )


def written(process: Process) -> dict[str, Any]:
    """As the file has it, which is JSON and so YAML."""
    kind, _, what = process.expected.partition(" ")
    state: Any = {"exited": {"exited": int(what)}} if kind == "exited" else {"signalled": {"signaled": what}}
    found = {
        "path": process.path,
        "args": list(process.args),
        "environment": process.environment,
        "start_time": write_time(process.start_ns),
        "shutdown_signal": process.shutdown_signal,
        "expected_final_state": state.get(kind, kind),
    }
    return found if process.shutdown_ns is None else found | {"shutdown_time": write_time(process.shutdown_ns)}


machines = st.dictionaries(names | st.just("x" * 64), st.lists(processes(), max_size=2), min_size=2, max_size=4)


@given(machines, st.integers(0, 2**32 - 1))
@settings(max_examples=examples(100), deadline=None)
def test_every_process_reads_back(hosts: dict[str, list[Process]], seed: int) -> None:
    document = {
        "general": {"stop_time": write_time(STOP_NS), "seed": seed},
        "network": {"graph": {"type": "1_gbit_switch"}},
        "hosts": {
            name: {"network_node_id": 0, "processes": list(map(written, own)), "bandwidth_up": write_rate(7.5)}
            for name, own in hosts.items()
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shadow.yaml")
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        found = read_shadow(path)
    assert {host.name: list(host.processes) for host in found.hosts} == hosts
    assert [host.name for host in found.hosts] == sorted(hosts)
    assert name_hosts([host.name for host in found.hosts]) == sorted(hosts), "programs find each other by these names"
    assert {host.up_mbit for host in found.hosts} == {7.5}
    assert (found.stop_ns, found.seed, found.remarks) == (STOP_NS, seed, ())


@given(st.integers(0, 10**15), st.floats(0.001, 1e6))
@settings(max_examples=examples(100), deadline=None)
def test_times_and_rates_read_back(ns: int, mbit: float) -> None:
    assert parse_time_ns(write_time(ns)) == ns
    found = parse_rate_mbit(write_rate(mbit))
    assert found is not None
    assert abs(found - mbit) <= 4.1e-6  # Shadow wants whole bytes per second


edges = st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 4)), st.integers(1, 50), max_size=20)


@given(edges, st.lists(st.integers(0, 4), min_size=2, max_size=6), st.booleans(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_delays_are_those_of_shadows_rules(
    given: dict[tuple[int, int], int], nodes: list[int], directed: bool, shortest: bool
) -> None:
    """The shortest path between two nodes, or the only edge; the loop between two hosts of one node."""
    if not directed:
        given = {pair: ms for pair, ms in given.items() if pair[0] <= pair[1]}
    both = given if directed else given | {(b, a): ms for (a, b), ms in given.items()}
    graph = "".join(
        f'edge [ source {a} target {b} latency "{ms} ms" packet_loss 0.0 ]\n' for (a, b), ms in given.items()
    )
    vertices = "".join(f'node [ id {n} host_bandwidth_up "1 Mbit" host_bandwidth_down "1 Mbit" ]\n' for n in range(5))
    config = {
        "general": {"stop_time": "1 s"},
        "network": {
            "graph": {"type": "gml", "inline": f"graph [\ndirected {int(directed)}\n{vertices}{graph}]"},
            "use_shortest_path": shortest,
        },
        "hosts": {f"h{host}": {"network_node_id": node, "processes": []} for host, node in enumerate(nodes)},
    }
    expected = asked(both, nodes, shortest)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shadow.yaml")
        path.write_text(json.dumps(config))
        try:
            found = IMPORTERS["shadow"].read(path, Options()).underlay.delay_ms
        except InputError:
            assert not np.isfinite(expected).all()
            return
    assert np.allclose(found, expected)


def asked(both: dict[tuple[int, int], int], nodes: list[int], shortest: bool) -> np.ndarray:
    """By Floyd and Warshall; infinite where the graph lacks a way."""
    ms = np.full((5, 5), math.inf)
    for (a, b), delay in both.items():
        ms[a, b] = delay
    loops = ms.diagonal().copy()
    if shortest:
        np.fill_diagonal(ms, 0)
        for middle in range(5):
            ms = np.minimum(ms, ms[:, [middle]] + ms[[middle], :])
    np.fill_diagonal(ms, loops)
    found = ms[np.ix_(nodes, nodes)]
    np.fill_diagonal(found, 0)
    return found


keys = sorted({name for known in SECTIONS.values() for name in known} | {"hosts", "a", "b", "<<", "x-y", "quantity"})
scalars = st.one_of(
    st.sampled_from(
        [
            *("1 s", "gml", "1_gbit_switch", "5", "true", "~", "1e999"),
            *("*a", "&a 1", "!!int x", "!!bool x", "!!float ''", "{", "[", "- 1"),
        ]
    ),
    st.integers(-(10**30), 10**30).map(str),
    st.text(max_size=5),
)
flow = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(keys), inner, max_size=4).map(
            lambda each: "{" + ", ".join(f"{name}: {value}" for name, value in each.items()) + "}"
        ),
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]"),
    ),
    max_leaves=12,
)


@given(st.one_of(flow, st.text(max_size=60)))
@settings(max_examples=examples(300), deadline=None)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shadow.yaml")
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            IMPORTERS["shadow"].read(path, Options())
        except InputError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 1000
