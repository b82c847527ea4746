"""Which code counts for the results of which experiments, and which changes of a module count."""

import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.experiment.form import DisseminationSpec, Experiment, MembershipSpec
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import WorkloadSpec
from harness.studies import code_hash
from harness.studies.code_hash import CODE, ROOT, Module, code_of, hash_modules, protocols_of, read_modules
from harness.studies.code_hash import used_modules as used
from harness.studies.form import RunSpec
from harness.studies.loader import load_study
from harness.studies.point_run import simulate_point
from harness.studies.store import Result, Store, jobs_of, study_code
from peer.protocols.description import Composition
from peer.protocols.registry import PROTOCOLS
from tests.examples import examples

HERE = code_hash.modules_here()

TREE = {
    "peer/core/links.py": "",
    "peer/core/nobody.py": "from peer.core.links import Links",
    "peer/protocols/tman/__init__.py": "",
    "peer/protocols/tman/frames.py": "from peer.core import ring, links",
    "peer/core/ring.py": "",
    "peer/protocols/__init__.py": "",
    "peer/protocols/registry.py": "from peer.protocols import alone, base, built, top, linked, modelled, single, told",
    "peer/protocols/description.py": "class Description: ...",
    "peer/protocols/alone/__init__.py": "PROTOCOL = Description(name='alone')",
    "peer/protocols/alone/inner/overlay.py": "import peer.protocols.description, peer.core.links",
    "peer/protocols/base/__init__.py": "ONE = Description(name='base-1')\nTWO = Description(parts={}, name='base-2')",
    "peer/protocols/base/overlay.py": "from peer.protocols.tman.frames import Frame",
    "peer/protocols/built/__init__.py": "PROTOCOL = Description(name='built')",
    "peer/protocols/built/overlay.py": "def late():\n    from peer.protocols.base.overlay import Overlay",
    "peer/protocols/top/__init__.py": "PROTOCOL = Description(name='top')",
    "peer/protocols/top/overlay.py": "from ..built import overlay",
    "peer/protocols/linked/__init__.py": "PROTOCOL = Description(name='linked')",
    "peer/protocols/modelled/__init__.py": "PROTOCOL = Description(name='modelled')",
    "peer/protocols/single.py": "import peer.core.single\nPROTOCOL = Description(name='single')",
    "peer/core/single.py": "",
    "peer/protocols/told/__init__.py": "from peer.protocols.told.overlay import *\nPROTOCOL = Description(name='told')",
    "peer/protocols/told/overlay.py": "",
    "peer/protocols/helper/__init__.py": "def described(): return Other(name='helper')",
    "peer/protocols/computed/__init__.py": "PROTOCOL = Description(name=NAME)",
    "peer/runtime/__init__.py": "",
    "peer/runtime/agent.py": "import peer.runtime.counts, peer.core.links",
    "peer/runtime/counts.py": "",
    "peer/runtime/clock.py": "",
    "peer/interop/identity.py": "",
    "peer/testing/solo.py": "import peer.protocols.alone",
    "harness/planning/models/__init__.py": "",
    "harness/planning/models/alone.py": "",
    "harness/planning/models/linked.py": "import harness.planning.models.modelled as other",
    "harness/planning/models/modelled.py": "",
    "harness/planning/models/nobody.py": "",
    "harness/planning/planner.py": "from peer.protocols import told\nODD = Description(name='odd')",
    "harness/simulator/queue.py": "import peer.core.links, peer.protocols.description, peer.runtime.clock",
    "harness/workload/interests.py": "",
    "harness/experiment/form.py": "from peer.protocols.registry import PROTOCOLS",
    "metrics/measures/deliveries.py": "",
    "metrics/overlay/graph.py": "",
    "topologies/matrix.py": "",
}
"""Sources with every way in which modules belong to protocols and import each other."""

NAMES = ("alone", "base-1", "base-2", "built", "top", "linked", "modelled", "single", "told")


def write(folder: Path, tree: dict[str, str]) -> Path:
    for name in (*tree, *(name for name in CODE if name not in tree)):
        path = folder / name if name.endswith(".py") else folder / name / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tree.get(name, ""))
    return folder


def test_what_was_read_of_the_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(code_hash, "CODE", ("harness/workload",))
    read, expected = code_hash.modules_here.__wrapped__, read_modules(ROOT)
    assert read() == expected != {}
    [kept] = (tmp_path / "trellis").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(code_hash, "ast", None)  # nothing is parsed again
        assert read() == expected
    kept.write_bytes(kept.read_bytes()[:-9])
    assert read() == expected


def hashes(tree: Path) -> dict[str, str]:
    modules = read_modules(tree)
    return {name: hash_modules(modules, [name]) for name in (*NAMES, "unknown")}


OWN = {
    "peer/protocols/alone/__init__.py": {"alone"},
    "peer/protocols/alone/inner/overlay.py": {"alone"},
    "peer/protocols/tman/__init__.py": {"base-1", "base-2", "built", "top"},
    "peer/protocols/tman/frames.py": {"base-1", "base-2", "built", "top"},
    "peer/core/ring.py": {"base-1", "base-2", "built", "top"},
    "peer/protocols/base/__init__.py": {"base-1", "base-2", "built", "top"},
    "peer/protocols/base/overlay.py": {"base-1", "base-2", "built", "top"},
    "peer/protocols/built/__init__.py": {"built", "top"},
    "peer/protocols/built/overlay.py": {"built", "top"},
    "peer/protocols/top/__init__.py": {"top"},
    "peer/protocols/top/overlay.py": {"top"},
    "peer/protocols/linked/__init__.py": {"linked"},
    "peer/protocols/modelled/__init__.py": {"modelled"},
    "peer/protocols/single.py": {"single"},
    "peer/core/single.py": {"single"},
    "peer/runtime/agent.py": set(),
    "peer/runtime/counts.py": set(),
    "peer/interop/identity.py": set(),
    "peer/testing/solo.py": set(),
    "harness/planning/models/alone.py": {"alone"},
    "harness/planning/models/linked.py": {"linked"},
    "harness/planning/models/modelled.py": {"linked", "modelled"},
}
"""Which protocols use a source; all use the others, and no simulation uses some."""


@pytest.mark.parametrize("changed", TREE)
def test_a_change_counts_for_the_protocols_that_use_the_module(changed: str, tmp_path: Path) -> None:
    before = hashes(write(tmp_path, TREE))
    (tmp_path / changed).write_text(f"{TREE[changed]}\nchanged = 1")
    after = hashes(tmp_path)
    own = OWN.get(changed, set(NAMES))
    expected = own | {"unknown"} if own else set()
    assert {name for name, hashed in after.items() if hashed != before[name]} == expected


def test_every_file_and_folder_of_the_code_counts(tmp_path: Path) -> None:
    seen = {hash_modules(read_modules(write(tmp_path, {})), [])}
    for count, path in enumerate(sorted(tmp_path.rglob("*.py")), 2):
        path.write_text("changed = 1")
        seen.add(hash_modules(read_modules(tmp_path), []))
        assert len(seen) == count
    assert count > len(CODE)
    (tmp_path / "peer" / "notes.txt").write_text("no code")
    assert hash_modules(read_modules(tmp_path), []) in seen
    (tmp_path / "peer" / "__init__.py").rename(tmp_path / "peer" / "other.py")
    assert hash_modules(read_modules(tmp_path), []) not in seen


def test_a_zip_has_the_hash_of_its_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "tree", TREE)
    with zipfile.ZipFile(tmp_path / "tree.zip", "w") as packed:
        for path in sorted(folder.rglob("*.py"), reverse=True):
            packed.write(path, path.relative_to(folder))
    assert hashes(tmp_path / "tree.zip") == hashes(folder)


CLASS = """class A:
    b = 1

    def c(self, d: int = 2) -> str:
        return "text" + f"{d!r:>{self.b}}" * d
"""

SAME = {
    "docstrings": '"""Of the module."""\nclass A:\n    """Of A."""\n    b = 1\n    """Of b."""\n\n'
    '    def c(self, d: int = 2) -> str:\n        """Of c."""\n        return "text" + f"{d!r:>{self.b}}" * d\n',
    "comments": f"# a comment\n\n\n{CLASS.replace('b = 1', 'b = 1  # noqa')}# the end",
    "layout": CLASS.replace("d: int = 2", "\n        d: int = 2,\n    ").replace('"text"', "('text')"),
}

OTHER = {
    "number": CLASS.replace("1", "3"),
    "truth": CLASS.replace("1", "True"),
    "fraction": CLASS.replace("1", "1.0"),
    "bytes": CLASS.replace('"text"', 'b"text"'),
    "text": CLASS.replace('"text"', '"test"'),
    "none": CLASS.replace("b = 1", "b = None"),
    "operator": CLASS.replace(" + ", " - "),
    "name": CLASS.replace("b", "e"),
    "annotation": CLASS.replace("int", "float"),
    "default": CLASS.replace(" = 2", ""),
    "format": CLASS.replace(":>", ":<"),
    "conversion": CLASS.replace("!r", ""),
    "returned_text": CLASS.replace("return ", "return 'a docstring?'\n        return "),
    "order": CLASS.replace("class A:\n    b = 1\n", "class A:\n").rstrip() + "\n    b = 1\n",
    "number_as_statement": CLASS.replace("        return", "        7\n        return"),
}


def digest(folder: Path, text: str) -> bytes:
    return read_modules(write(folder, {"peer/module.py": text}))["peer.module"].digest


@pytest.mark.parametrize("variant", SAME)
def test_text_and_layout_do_not_count(variant: str, tmp_path: Path) -> None:
    assert SAME[variant] != CLASS
    assert digest(tmp_path, SAME[variant]) == digest(tmp_path, CLASS)


@pytest.mark.parametrize("variant", OTHER)
def test_every_other_change_counts(variant: str, tmp_path: Path) -> None:
    assert digest(tmp_path, OTHER[variant]) != digest(tmp_path, CLASS)


SAMPLE = (
    CLASS
    + """
@d.e(*f, **g)
async def h(j, /, *k: "L", m=(1, 2.5e-300, 3j, ..., b"\\xff", "\\u00e9\\U0001fae8"), **n):
    global o
    p, *q = {r: s, **t}, {u async for u in v if w}
    match await x:
        case [1, {"y": z, **a}, B(c=None) | -2] if (d := e) is not f < g:
            yield lambda i, *, j=k: [l, *m][n:o:p]
    try:
        del q.r, s
    except* T as t:
        raise U from v
    else:
        with w as x, y: pass
    finally:
        while not z: break
    f"{a=}{b:{c}}d" "e" f'{f!s}' if g else (yield)
"""
)


def test_a_module_has_the_same_digest_in_every_version_of_python(tmp_path: Path) -> None:
    """The literal is what Python 3.11, 3.12 and 3.13 give."""
    assert digest(tmp_path, SAMPLE).hex()[:16] == "ea5552ae6216b5c8"


@given(st.data())
@settings(max_examples=examples(10), deadline=None)
def test_neither_the_order_of_the_modules_nor_that_of_the_protocols_matters(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(PROTOCOLS)), unique=True))
    shuffled = dict(data.draw(st.permutations(sorted(HERE.items()))))
    assert hash_modules(shuffled, data.draw(st.permutations(names))) == hash_modules(HERE, names)
    assert used(HERE, names) == used(HERE, []).union(*(used(HERE, [name]) for name in names))


def packages_of(modules: set[str]) -> set[str]:
    """The protocols' packages among modules, and those that have models among them."""
    found = {name.split(".")[2] for name in modules if name.startswith("peer.protocols.") and name.count(".") > 2}
    models = {name.split(".")[3] for name in modules if name.startswith("harness.planning.models.")}
    return found | models - {"__init__"}


def test_no_protocol_counts_for_the_experiments_of_all_others() -> None:
    """Otherwise a mark on a page would say little."""
    assert packages_of(used(HERE, [])) == set()
    assert packages_of(used(HERE, PROTOCOLS)) == packages_of(set(HERE))
    assert packages_of(used(HERE, ["stan"])) == {"stan"}
    assert packages_of(used(HERE, ["similarity"])) == {"similarity", "spidercast"}
    assert packages_of(used(HERE, ["gossipsub-bounded"])) == {"gossipsub", "random_graph"}
    assert "peer.protocols.tman.overlay" in used(HERE, ["vitis"]) - used(HERE, ["spidercast"])
    assert {name for module in HERE.values() for name in module.describes} == set(PROTOCOLS)


def test_all_that_a_simulation_imports_counts_although_other_code_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to a module of ``CODE`` may lead through modules outside it, whose imports the hash does not read."""
    monkeypatch.setattr(code_hash, "CODE", ("harness", "metrics"))
    everything = HERE | read_modules(ROOT)
    assert everything.keys() > HERE.keys()
    imports = {
        name: code_hash.resolve_names(module.imports | {name}, everything) for name, module in everything.items()
    }
    imports[code_hash.REGISTRY] -= set().union(*code_hash.own_modules(everything).values())
    reached = code_hash.reach(imports, {"harness.studies.point_run"})
    assert len(reached & HERE.keys()) > 50
    assert reached & HERE.keys() <= used(HERE, [])


def small(protocol: str, **sections: Any) -> Experiment:
    return Experiment(
        name="small",
        protocol=protocol,
        underlay=UnderlaySpec(kind="world-cities", hosts=12),
        workload=WorkloadSpec(duration_s=2),
        **sections,
    )


def test_an_experiment_uses_its_protocol_and_the_parts_of_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert protocols_of(small("random")) == {"random"}
    assert protocols_of(small("plumtree")) == {"plumtree"}
    assert protocols_of(small("stan", dissemination=DisseminationSpec(kind="topic-flood"))) == {"stan"}
    parts = Composition({"name": "vitis"}, {"name": "scribe"})
    monkeypatch.setattr(code_hash, "choose_parts", lambda _: parts)
    assert protocols_of(small("random")) == {"random", "vitis", "scribe"}


@contextmanager
def watching() -> Iterator[set[str]]:
    """Collect the modules of which functions are called."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            seen.add(frame.f_globals.get("__name__", ""))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_simulation_runs_no_code_of_protocols_that_do_not_count(protocol: str) -> None:
    experiment = small(protocol, membership=MembershipSpec(kind="full"))
    with watching() as called:
        simulate_point(experiment, RunSpec(), ("degree_mean", "delivery_ratio", "frames_per_change"), Path())
    modules = {name if name in HERE else f"{name}.__init__" for name in called} & set(HERE)
    counted = used(HERE, protocols_of(experiment))
    assert modules <= counted
    assert packages_of(modules), "nothing was seen"


STUDY = """
name = "small"
measures = ["degree_mean"]
seeds = 1
[experiment.underlay]
kind = "uniform"
hosts = 8
[run]
length_s = 2
[[variants]]
name = "one"
set = { protocol = "stan" }
[[variants]]
name = "two"
set = { protocol = "spidercast" }
"""


UNCACHED = code_hash.code_of_protocols.__wrapped__


def change(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Let a module have other content from now on."""
    assert module in HERE
    changed = HERE | {module: Module(b"other", HERE[module].describes, HERE[module].imports)}
    monkeypatch.setattr(code_hash, "modules_here", lambda: changed)
    monkeypatch.setattr(code_hash, "code_of_protocols", UNCACHED)


def test_a_sweep_keeps_the_results_of_protocols_that_have_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(STUDY)
    study = load_study(tmp_path / "small.toml")
    jobs = jobs_of(study, tmp_path)
    assert [job.code for job in jobs] == [code_of([job.experiment]) for job in jobs]
    assert len({study_code(study), *(job.code for job in jobs)}) == 3
    for job in jobs:
        Store(tmp_path).write(Result(job.key, job.at, job.seed, job.code, 1.0, 1, ()))
    assert Store(tmp_path).count(jobs) == 2
    before = study_code(study)
    for module, kept in (
        ("peer.protocols.vitis.overlay", [True, True]),
        ("peer.protocols.stan.overlay", [False, True]),
        ("harness.planning.models.spidercast", [True, False]),
        ("harness.simulator.queue", [False, False]),
    ):
        change(monkeypatch, module)
        again = jobs_of(study, tmp_path)
        assert [job.key for job in again] == [job.key for job in jobs]
        assert [Store(tmp_path).read(job) is not None for job in again] == kept
        assert all(Store(tmp_path, any_code=True).read(job) is not None for job in again)
        assert (study_code(study) == before) == all(kept)
