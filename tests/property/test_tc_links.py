"""Whatever the options of Mininet's links hold, they are read within the limits of a graph, or refused in one line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from topologies.importers import Options
from topologies.importers.tc_links import TcLink, TcNetwork, import_network
from topologies.link_graph import LinkGraph
from topologies.provenance import Provenance
from topologies.reading import InputError

NAMES = ("bw", "delay", "jitter", "loss", "max_queue_size", "use_htb", "params1", "params2", "cls", "unknown")

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from(["5ms", "1s", "250us", "1.5 msec", "7", "1e3ms", "-1ms", "ms", "", "x" * 500, "5\nms"]),
    st.text(max_size=5),
    st.dictionaries(st.sampled_from(NAMES[:5]), st.integers(0, 50), max_size=2),
)


@given(st.dictionaries(st.sampled_from(NAMES), values, max_size=4))
@settings(max_examples=examples(400), deadline=None)
def test_any_options_are_read_or_refused(options: Mapping[str, Any]) -> None:
    network = TcNetwork(("a", "b"), ("s",), (TcLink("a", "s", options), TcLink("s", "b", {"delay": "1ms"})))
    try:
        found = import_network("mininet", Path("t.py"), network, Options(), Provenance())
    except InputError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 400
        return
    graph = found.underlay.graph
    assert graph is not None
    assert msgspec.json.decode(msgspec.json.encode(graph), type=LinkGraph) == graph
    out, back = graph.links[:2]
    if not {"params1", "params2"} & options.keys():
        assert out == msgspec.structs.replace(back, source=out.source, destination=out.destination)


@given(
    st.floats(0.5, 100),
    st.integers(1, 200),
    st.floats(0, 50),
    st.floats(0, 99),
)
@settings(max_examples=examples(100), deadline=None)
def test_values_are_converted(bw: float, packets: int, delay_ms: float, percent: float) -> None:
    options = {"bw": bw, "max_queue_size": packets, "delay": f"{delay_ms:.6f}ms", "loss": percent}
    network = TcNetwork(("a", "b"), (), (TcLink("a", "b", options),))
    graph = import_network("mininet", Path("t.py"), network, Options(), Provenance()).underlay.graph
    assert graph is not None
    for link in graph.links:
        assert link.rate_mbit == bw
        assert link.delay_ms == pytest.approx(delay_ms, abs=1e-6)
        assert link.loss_ratio == pytest.approx(percent / 100)
        assert link.queue_ms * bw * 1000 == pytest.approx(packets * 12_000)  # bits that wait
