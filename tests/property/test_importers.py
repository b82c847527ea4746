"""What holds of every list of pairs and every mesh: files keep their values, and statistics match their definitions."""

from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from msgspec.structs import replace

from topologies.generated import plain_underlay
from topologies.holes import ESTIMATES, RELAYED, complete_hosts, fill, missing_pairs
from topologies.importers import IMPORTERS, Options
from topologies.importers.imported import Imported, named_hosts
from topologies.model import Host
from topologies.provenance import Provenance
from topologies.reading import InputError
from topologies.statistics import asymmetry, detours

SIZE = 4
words = (
    st.text("abc, \"'#;\u00e9", min_size=1, max_size=6).map(str.strip).filter(lambda word: word[:1] not in ("", "#"))
)


rates = st.just(0.0) | st.floats(0.001, 1e6).map(lambda value: round(value, 6))


def matrices(largest: float):
    elements = st.floats(0, largest).map(lambda value: round(value, 6))
    return arrays.arrays(np.float64, (SIZE, SIZE), elements=elements).map(without_own)


def without_own(matrix: np.ndarray) -> np.ndarray:
    np.fill_diagonal(matrix, 0)
    return matrix


@st.composite
def imports(draw: st.DrawFn) -> Imported:
    names = draw(st.lists(words, min_size=SIZE, max_size=SIZE, unique=True))
    underlay = plain_underlay("x", named_hosts(names), draw(matrices(60_000)))
    underlay = replace(underlay, jitter_ms=draw(matrices(50)), loss_ratio=draw(matrices(0.9)))
    stated = draw(st.fixed_dictionaries({}, optional={"source": words, "date": words, "licence": words}))
    return Imported(underlay, ("",) * SIZE, Provenance(**stated))


@pytest.mark.parametrize("form", ["pairs", "mesh"])
@given(imports())
def test_a_written_file_is_read_as_what_it_was(tmp_path_factory, form: str, imported: Imported) -> None:
    path: Path = tmp_path_factory.mktemp("import") / "data"
    assert IMPORTERS[form].write(path, imported) == []
    found = IMPORTERS[form].read(path, Options())
    for name in ("delay_ms", "jitter_ms", "loss_ratio"):
        assert np.array_equal(getattr(found.underlay, name), getattr(imported.underlay, name))
    assert found.underlay.hosts == imported.underlay.hosts
    assert not found.underlay.filled.any()
    assert found.provenance.statements() == {
        name: " ".join(text.split()) if form == "pairs" else text
        for name, text in imported.provenance.statements().items()
    }


@given(st.floats(-90, 90), st.floats(-180, 180), st.sampled_from(["", "EU"]), rates, rates)
def test_a_mesh_keeps_places_regions_and_rates(
    tmp_path_factory, latitude: float, longitude: float, region: str, up_mbit: float, down_mbit: float
) -> None:
    hosts = (Host(name="a", site="a", country="PT", latitude=latitude, longitude=longitude), Host(name="b", site="b"))
    underlay = plain_underlay("x", hosts, np.array([[0, 1.5], [2, 0]]))
    underlay = replace(underlay, rate_mbit=np.array([[up_mbit, 3], [down_mbit, 0]]))
    path = tmp_path_factory.mktemp("mesh") / "m.json"
    imported = Imported(underlay, (region, ""), Provenance())
    assert IMPORTERS["mesh"].write(path, imported) == []
    lost = "rates of access links: not in a pairs file"
    assert (lost in IMPORTERS["pairs"].write(path.with_suffix(".csv"), imported)) == bool(underlay.rate_mbit.any())
    found = IMPORTERS["mesh"].read(path, Options())
    assert np.array_equal(found.underlay.rate_mbit, underlay.rate_mbit)
    assert found.underlay.hosts == hosts
    assert found.regions == (region, "")


@given(matrices(100))
def test_detours_are_counted_as_defined(delay_ms: np.ndarray) -> None:
    best = {
        (a, b): min(delay_ms[a, relay] + delay_ms[relay, b] for relay in range(SIZE) if relay not in (a, b))
        for a, b in permutations(range(SIZE), 2)
    }
    found = detours(delay_ms)
    assert found.sources == SIZE
    assert found.faster_ratio == sum(best[pair] < delay_ms[pair] - 1e-6 for pair in best) / len(best)
    assert found.tenth_ratio == sum(best[pair] < 0.9 * delay_ms[pair] for pair in best) / len(best)


def test_detours_of_many_hosts_are_those_of_a_sample() -> None:
    delay_ms = np.random.default_rng(1).uniform(1, 100, (150, 150))
    np.fill_diagonal(delay_ms, 0)
    whole, sample = detours(delay_ms), detours(delay_ms, most_sums=150**2 * 50)
    assert (whole.sources, sample.sources) == (150, 50)
    assert sample.faster_ratio == pytest.approx(whole.faster_ratio, abs=0.02)


@given(matrices(100))
def test_asymmetry_is_counted_as_defined(delay_ms: np.ndarray) -> None:
    pairs = [(delay_ms[a, b], delay_ms[b, a]) for a in range(SIZE) for b in range(a + 1, SIZE)]
    gaps = [abs(there - back) for there, back in pairs]
    ratios = [abs(there - back) / max(there, back) if there != back else 0.0 for there, back in pairs]
    found = asymmetry(delay_ms)
    assert (found.differing, found.pairs) == (sum(gap > 0 for gap in gaps), len(pairs))
    assert (found.median_ms, found.largest_ms) == pytest.approx((np.median(gaps), max(gaps)))
    assert (found.median_ratio, found.largest_ratio) == pytest.approx((np.median(ratios), max(ratios)))


@given(matrices(100), matrices(9), matrices(0.9), arrays.arrays(np.bool_, (SIZE, SIZE)))
def test_a_path_is_the_shortest_of_all_paths(
    time_ms: np.ndarray, deviation_ms: np.ndarray, loss_ratio: np.ndarray, holes: np.ndarray
) -> None:
    """Of paths with the same sum any may be chosen, so their other values are compared only for one of them."""
    time_ms = np.where(holes, np.nan, time_ms)
    names = [str(number) for number in range(SIZE)]
    found = walk(time_ms)
    unmeasured = missing_pairs(time_ms) & missing_pairs(time_ms).T
    if any((a, b) not in found for a, b in np.argwhere(unmeasured)):
        with pytest.raises(InputError, match="nor is there a path"):
            fill(names, time_ms, deviation_ms, loss_ratio, ESTIMATES["path"])
        return
    filled = fill(names, time_ms, deviation_ms, loss_ratio, ESTIMATES["path"])
    for pair in map(tuple, np.argwhere(unmeasured)):
        paths = found[pair]
        assert filled.filled[pair] == RELAYED
        assert filled.time_ms[pair] == pytest.approx(min(paths.values()))
        shortest = [path for path, length_ms in paths.items() if length_ms == pytest.approx(min(paths.values()))]
        if len(shortest) == 1:
            steps = list(pairwise(shortest[0]))
            assert filled.deviation_ms[pair] == pytest.approx(np.linalg.norm([deviation_ms[step] for step in steps]))
            assert filled.loss_ratio[pair] == pytest.approx(1 - np.prod([1 - loss_ratio[step] for step in steps]))
    kept = ~missing_pairs(time_ms)
    np.fill_diagonal(kept, val=False)
    assert np.array_equal(filled.time_ms[kept], time_ms[kept]), "what is measured stays, even if a path is shorter"


def walk(time_ms: np.ndarray) -> dict[tuple[int, int], dict[tuple[int, ...], float]]:
    """The lengths of all paths of measured pairs, by their ends."""
    found: dict[tuple[int, int], dict[tuple[int, ...], float]] = {}
    for length in range(2, SIZE + 1):
        for path in permutations(range(SIZE), length):
            if not np.isnan(total_ms := sum(time_ms[step] for step in pairwise(path))):
                found.setdefault((path[0], path[-1]), {})[path] = total_ms
    return found


@given(arrays.arrays(np.bool_, (7, 7)))
def test_dropping_leaves_no_hole_and_no_fewer_hosts_than_needed(holes: np.ndarray) -> None:
    time_ms = np.where(holes, np.nan, 1.0)
    np.fill_diagonal(time_ms, 0)
    kept = complete_hosts(time_ms)
    assert not np.isnan(time_ms[np.ix_(kept, kept)]).any()
    whole = [host for host in range(7) if not np.isnan(time_ms[host]).any() and not np.isnan(time_ms[:, host]).any()]
    assert set(whole) <= set(kept.tolist())
