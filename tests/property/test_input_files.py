"""Files of users: each accepted form of a matrix reads alike, and any content gives at most one error."""

import csv
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from harness.errors import ExperimentError
from harness.experiment.document import read_toml
from harness.experiment.loader import load_experiment
from harness.workload.files import read_interests, read_sessions
from harness.workload.follower_graph import sample_followers
from tests.examples import examples
from tests.matrices import read_matrix
from topologies.importers import IMPORTERS, Options
from topologies.importers.wondernetwork_files import read_measurements
from topologies.reading import InputError

NAMES = ["Oslo", "San José", "x-1", "Nan"]
delays = arrays.arrays(np.float64, (4, 4), elements=st.floats(0.5, 60_000).map(lambda value: round(value, 6)))


@given(
    delays,
    st.sampled_from([",", "\t", ";", " "]),
    st.sampled_from(["none", "header", "labels", "both", "both without corner"]),
    st.sampled_from(["0", "", "-", "\u2014", "nan", "0.25"]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff", "# a comment\n\n"]),
)
@settings(max_examples=examples(200), deadline=None)
def test_each_form_of_a_matrix_reads_alike(
    delay_ms: np.ndarray, separator: str, named: str, own: str, ends: bool, line: str, before: str
) -> None:
    if separator == " " and own == "":
        own = "-"  # a blank cell cannot be seen between spaces
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, lineterminator=line)
    labelled, more = named in ("labels", "both", "both without corner"), [""] * (ends and separator != " ")
    if named in ("header", "both", "both without corner"):
        corner = ["from" if separator == " " else ""] if named == "both" else []
        writer.writerow([*corner, *NAMES, *more])
    for number, row in enumerate(delay_ms):
        cells = [own if column == number else repr(float(value)) for column, value in enumerate(row)]
        writer.writerow([*([NAMES[number]] if labelled else []), *cells, *more])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.txt")
        path.write_bytes((before + text.getvalue()).encode())
        names, found = read_matrix(path)
    assert names == (NAMES if named != "none" else [f"host {number}" for number in range(4)])
    np.fill_diagonal(delay_ms, 0)
    assert np.array_equal(found, delay_ms)


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "matrix": ("m.csv", read_matrix),
    "pings": ("pings.csv", read_measurements),
    "sessions": ("s.csv", read_sessions),
    "interests": ("i.csv", lambda path: read_interests(path, 3, 3)),
    "JSON interests": ("i.jsonl", lambda path: read_interests(path, 3, 3)),
    "followers": ("g.txt", lambda path: sample_followers(path, 3, Random(1))),
    "mesh": ("m.json", lambda path: IMPORTERS["mesh"].read(path, Options())),
    "ethp2p": ("t.json", lambda path: IMPORTERS["ethp2p"].read(path, Options())),
    "GraphML": ("g.graphml", lambda path: IMPORTERS["graphml"].read(path, Options())),
    "GML": ("g.gml", lambda path: IMPORTERS["gml"].read(path, Options())),
    "Rocketfuel": ("latencies.intra", lambda path: IMPORTERS["rocketfuel"].read(path, Options())),
    "MiniEdit": ("m.mn", lambda path: IMPORTERS["miniedit"].read(path, Options())),
    "Shadow": ("shadow.yaml", load_experiment),
    "document": ("x.toml", read_toml),
    "experiment": ("x.toml", load_experiment),
}

cells = st.sampled_from(["", "0", "1", "2.5", "-", "-1", "nan", "inf", "1e999", "a", "b", "#", '"', "1_0", "9" * 5000])
tables = st.lists(st.lists(cells, max_size=5).map(",".join), max_size=6).map("\n".join)
spaced = tables.map(lambda text: text.replace(",", " "))
toml = st.lists(
    st.sampled_from(
        [
            'name = "x"',
            "[underlay]",
            "[a.b]",
            "hosts = 3",
            "seed = 9" + "9" * 4400,
            "x = nan",
            "y = [[[",
            "]]]",
            "z = {",
        ]
    ),
    max_size=6,
).map("\n".join)


@pytest.mark.parametrize("reader", READERS)
@given(st.one_of(st.binary(max_size=60), st.one_of(st.text(max_size=60), tables, spaced, toml).map(str.encode)))
@settings(max_examples=examples(150), deadline=None)
def test_any_content_is_read_or_refused_in_one_line(reader: str, content: bytes) -> None:
    name, read = READERS[reader]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        Path(folder, "servers.csv").write_bytes(content)
        try:
            read(path)
        except (InputError, ExperimentError) as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 1000
