"""docs/protocol-contract.md: its tables are those of the classes, and its example is a protocol that works."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import fields

from peer.core.contract import Publish, message_id
from peer.core.copies import MOST_KEPT_BYTES, Copies
from peer.core.frames import Data
from peer.core.parts import Neighbour
from peer.plugins import VARIABLE
from peer.protocols.description import Composition, Description
from peer.protocols.registry import background_kinds, compose, copies_may_wait
from peer.testing import Solo, deliveries, traces
from peer.wire import MAX_FRAME_BYTES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/protocol-contract.md").read_text(encoding="utf-8")
[EXAMPLE] = re.findall(r"```python\n(# poll\.py\n.*?)```", PAGE, re.DOTALL)

CLASSES = {
    "Part": "peer/core/parts.py",
    "Turn": "peer/core/parts.py",
    "Spreading": "peer/core/dissemination/spread.py",
    "Copies": "peer/core/copies.py",
    "OutgoingLinks": "peer/core/outgoing.py",
}
USED = {"Part": ("frames", "writes", "overhears", "borrows"), "Turn": ("now_ns",), "Spreading": ("seen",)}
"""What the page has besides the methods."""


def rows_below(heading: str) -> Iterator[list[str]]:
    """The cells of the rows of all tables in a section."""
    section = PAGE.split(f"\n{heading}\n")[1]
    for line in re.split(r"^#+ ", section, maxsplit=1, flags=re.MULTILINE)[0].splitlines():
        if line.startswith("| `"):
            yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def class_of(name: str, source: str) -> ast.ClassDef:
    [found] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
    return found


def first_words(docstring: str | None) -> str:
    assert docstring is not None
    return " ".join(docstring.split("\n\n")[0].split()).replace("``", "`")


def signature_of(method: ast.FunctionDef) -> str:
    arguments = re.sub("^self(, )?", "", ast.unparse(method.args))
    returned = "" if method.returns is None else ast.unparse(method.returns)
    return f"{method.name}({arguments})" + (f" -> {returned}" if returned != "None" else "")


def methods_of(found: ast.ClassDef) -> dict[str, str]:
    """Each public method's signature, and what it does."""
    return {
        signature_of(node): first_words(ast.get_docstring(node))
        for node in found.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def attributes_of(found: ast.ClassDef) -> dict[str, str]:
    """What the class says of its attributes: below a field, or in its docstring."""
    below = {
        field.target.id: first_words(text.value.value)
        for field, text in zip(found.body, found.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
    listed = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", ast.get_docstring(found) or "", re.MULTILINE)
    return below | {name: first_words(text[0].upper() + text[1:]) for name, text in listed}


@pytest.mark.parametrize("name", CLASSES)
def test_the_tables_have_every_method_in_the_codes_own_words(name: str) -> None:
    found = class_of(name, (ROOT / CLASSES[name]).read_text(encoding="utf-8"))
    methods, attributes = methods_of(found), attributes_of(found)
    shown = {row[0].strip("`"): row[1] for row in rows_below(f"### {name}")}
    assert shown.items() >= methods.items()
    assert (methods | attributes).items() >= shown.items(), "a row is of no method or attribute"
    assert set(USED.get(name, ())) <= shown.keys()


def test_a_method_that_is_added_or_renamed_is_noticed() -> None:
    source = (ROOT / CLASSES["Turn"]).read_text(encoding="utf-8")
    assert "cancel_timer(name: str)" in methods_of(class_of("Turn", source))
    renamed = class_of("Turn", source.replace("def cancel_timer(", "def drop_timer("))
    assert methods_of(renamed).keys() - methods_of(class_of("Turn", source)).keys() == {"drop_timer(name: str)"}


def test_the_page_has_the_types_of_a_neighbours_fields() -> None:
    found = class_of("Neighbour", (ROOT / CLASSES["Part"]).read_text(encoding="utf-8"))
    types = {node.target.id: ast.unparse(node.annotation) for node in found.body if isinstance(node, ast.AnnAssign)}
    rows = [row for row in rows_below("## Who writes what") if len(row) == 4]
    assert {row[0].strip("`"): row[1].strip("`") for row in rows} == types
    assert types.keys() == set(Neighbour.__struct_fields__)


def test_the_page_has_every_field_of_a_description() -> None:
    named = {name for row in rows_below("## A new protocol of Trellis") for name in re.findall(r"`(\w+)`", row[0])}
    assert named == {field.name for field in fields(Description)}


def test_seen_has_what_the_page_says() -> None:
    own, relayed, first, second, third = message_id(0, 0), *(message_id(9, number) for number in range(4))
    node = compose(0, 1, (7,), Composition({"name": "random"}, {"name": "flood", "ttl": 255, "seen_messages": 2}))
    solo = Solo(node)
    part = solo.part("dissemination")
    solo.start({1: None})
    solo.link_up(1)
    solo.give(Publish((8,), own, b""))
    assert own in part.seen, "the node does not subscribe to its topic"
    assert deliveries(solo.receive(1, Data(relayed, (8,), 1, 255, b""))) == []
    assert list(part.seen) == [own, relayed]
    part.remember(own, (8, 9))
    assert list(part.seen.items()) == [(own, (8, 9)), (relayed, (8,))]
    assert len(deliveries(solo.receive(1, Data(first, (7,), 1, 255, b"")))) == 1
    assert list(part.seen) == [relayed, first]
    [refused] = traces(solo.receive(1, Data(own, (8,), 1, 255, b"")))
    assert (refused.event, refused.reason) == ("reject", "own_message")
    for identifier in (second, third, first):
        assert len(deliveries(solo.receive(1, Data(identifier, (7,), 1, 255, b"")))) == 1, "new, or forgotten"


def test_a_store_of_copies_is_what_the_page_says() -> None:
    copies: Copies[int, str] = Copies(2)
    copies.put(1, "a", 10)
    copies.put(2, "b", 10)
    assert copies.get(1) == "a"
    copies.put(3, "c", 10)
    assert (len(copies), 1 in copies, copies.get(1)) == (2, False, None), "it was read, and is the first one"
    copies.put(2, "d", 10)
    assert list(copies) == [2, 3]
    assert list(reversed(copies)) == [(3, "c"), (2, "d")]
    assert "64 MiB (`MOST_KEPT_BYTES`)" in PAGE and MOST_KEPT_BYTES == 64 << 20
    assert MAX_FRAME_BYTES <= MOST_KEPT_BYTES, "a message of the largest size fits"
    with pytest.raises(RuntimeError):
        for key in copies:
            copies.forget(key)


# ---------------------------------------------------------------------------------------------------------- example


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("poll")
    (folder / "poll.py").write_text(EXAMPLE)
    (folder / "x.toml").write_text(
        'name = "x"\nplugins = ["poll.py"]\nprotocol = "poll"\ntestbed = "simulated"\npoll.period_ms = 100\n'
        "underlay.hosts = 10\nworkload.duration_s = 5\n"
    )
    return folder


def python(folder: Path, *words: str) -> str:
    """Run Python in another process: the frame of the example would be registered in this one."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: str(folder / "poll.py")}
    done = subprocess.run(
        [sys.executable, "-P", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


NETWORK = """
import json
from peer.core.contract import Publish, message_id
from peer.protocols.registry import PROTOCOLS, compose
from peer.testing import Faults, Pump
SECOND_NS = 1_000_000_000
nodes = {node: compose(node, 1, (7,), PROTOCOLS["poll"].composition) for node in range(20)}
pump = Pump(nodes, lambda source, destination: 10_000_000, Faults(duplicate_ratio=0.3), seed=1)
pump.start(dict.fromkeys(nodes, (7,)))
pump.run(5 * SECOND_NS)
pump.give(0, Publish((7,), message_id(0, 0), b"payload"))
at_once = len(pump.delivered)
pump.run(10 * SECOND_NS)
print(json.dumps([at_once, sorted(node for _, node, _ in pump.delivered)]))
"""


def test_the_example_pulls_each_message_once(folder: Path) -> None:
    assert json.loads(python(folder, "-c", NETWORK)) == [1, list(range(20))]


SIMULATED = """
import json
from pathlib import Path
from harness.experiment.loader import load_experiment
from harness.studies.form import RunSpec
from harness.studies.point_run import simulate_point
names = ("delivery_ratio", "propagation_delay_ms_mean")
def simulate(*settings):
    rows = simulate_point(load_experiment(Path("x.toml"), settings), RunSpec(), names, Path())
    return {row.measure: row.value for row in rows}
print(json.dumps([simulate(), simulate("poll.period_ms=400")]))
"""


def test_the_example_is_simulated_with_its_parameter(folder: Path) -> None:
    often, rarely = json.loads(python(folder, "-c", SIMULATED))
    assert often["delivery_ratio"] == rarely["delivery_ratio"] == 1
    assert often["propagation_delay_ms_mean"] < rarely["propagation_delay_ms_mean"]


def test_the_plan_says_that_it_predicts_no_frames_of_a_plugin(folder: Path) -> None:
    lines = python(folder, "-m", "harness.cli", "plan", "x.toml").splitlines()
    assert "frames       not predicted: there is no model of the dissemination poll" in lines
    assert any(line.startswith("links ") for line in lines)


DECLARED = """
import json
from metrics.measures.registry import find_measure
from metrics.measures.traffic import Traffic
from peer.protocols.registry import background_kinds, copies_may_wait
asked, subscriptions, data = 200, 3, 16
traffic = Traffic({asked: 1000, subscriptions: 6, data: 500}, {}, 10.0, changes=3)
value = find_measure("control_frames_per_change").formula(traffic)
print(json.dumps([asked in background_kinds(), value, copies_may_wait({"name": "poll"})]))
"""


def test_what_the_example_declares_is_used_only_where_it_is_loaded(folder: Path) -> None:
    assert json.loads(python(folder, "-c", DECLARED)) == [True, 2.0, True]
    assert (200 in background_kinds(), copies_may_wait({"name": "poll"})) == (False, False)
