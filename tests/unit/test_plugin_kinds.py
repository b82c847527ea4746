"""The examples of docs/plugins.md are plugins of every kind: used, shipped, hashed, and refused if they are wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from peer.plugins import KINDS, VARIABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
EXAMPLES = {
    code.splitlines()[0].removeprefix("# "): code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
}
PLUGINS = ("sea", "deaf.py", "ring.py", "halves.py")


def write_examples(folder: Path) -> Path:
    for name, code in EXAMPLES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code)
    (folder / "h.txt").write_text("a 1\nb 2\nc 4\n")
    (folder / "x.toml").write_text('name = "x"\ntestbed = "simulated"\nunderlay.hosts = 10\n')
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_examples(tmp_path)


def python(*words: str, folder: Path, path: Path = ROOT, plugins: tuple[str, ...] = PLUGINS) -> str:
    """Run Python in a folder with plugins, and return what it prints."""
    named = os.pathsep.join(str(folder / name) for name in plugins)
    environment = {**os.environ, "PYTHONPATH": str(path), VARIABLE: named}
    done = subprocess.run(
        [sys.executable, "-P", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def script(folder: Path, code: str, **options: object) -> dict[str, object]:
    """Run code that prints JSON."""
    (folder / "script.py").write_text(textwrap.dedent(code))
    found: dict[str, object] = json.loads(python("script.py", folder=folder, **options))  # type: ignore[arg-type]
    return found


def refusal(folder: Path, *words: str) -> str:
    """Return the error message of a command that is refused."""
    words = ("-m", "harness.cli", *words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-P", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_the_page_has_all_kinds() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(trellis\.\w+)` \|", PAGE, re.MULTILINE)
    assert rows == [(kind.attribute, f"trellis.{name}") for name, kind in KINDS.items()]
    code = "".join(EXAMPLES.values())
    assert [kind.attribute for kind in KINDS.values() if f"\n{kind.attribute} = " not in code] == []


def test_experiments_use_adversaries_and_underlays_of_plugins(folder: Path) -> None:
    found = script(
        folder,
        """
        import json
        from pathlib import Path
        from harness.experiment.form import resolve
        from harness.experiment.loader import load_experiment
        from harness.planning.composition import choose_behaviour
        from harness.planning.underlays import make_network, make_underlay
        def load(*settings):
            return load_experiment(Path("x.toml"), ["underlay.kind=ring", "ring.step_ms=3", *settings])
        deaf = load("adversary.kind=deaf", "deaf.most_bytes=7")
        underlay, network = make_underlay(deaf, Path()).underlay, make_network(deaf, Path())
        print(json.dumps({
            "behaviour": choose_behaviour(deaf, [2]),
            "sections": sorted(resolve(deaf).keys() & {"deaf", "ring", "wave"}),
            "others": sorted(resolve(load()).keys() & {"deaf", "ring", "wave"}),
            "delay_ms": underlay.delay_ms[0].tolist(),
            "same": float(network.delay_ms(0, 6)) == float(underlay.delay_ms[0, 6]),
        }))
        """,
    )
    assert found == {
        "behaviour": {"name": "deaf", "most_bytes": 7},
        "sections": ["deaf", "ring"],
        "others": ["ring"],
        "delay_ms": [0, 3, 6, 9, 12, 15, 12, 9, 6, 3],
        "same": True,
    }


def test_a_simulated_point_has_the_measures_of_plugins(folder: Path) -> None:
    """An adversary that passes on nothing changes the value, too."""
    found = script(
        folder,
        """
        import json
        from pathlib import Path
        from harness.experiment.loader import load_experiment
        from harness.studies.form import RunSpec
        from harness.studies.point_run import simulate_point
        names = ("propagation_delay_ms_p75", "propagation_delay_ms_p50", "propagation_delay_ms_p90", "delivery_ratio")
        def simulate(*settings):
            settings = ("protocol=wave", "underlay.kind=ring", "random.degree=3", "workload.duration_s=5", *settings)
            rows = simulate_point(load_experiment(Path("x.toml"), settings), RunSpec(), names, Path())
            return {row.measure: row.value for row in rows}
        print(json.dumps([simulate(), simulate("adversary.kind=deaf", "adversary.ratio=0.5")]))
        """,
    )
    honest, attacked = found
    assert honest["propagation_delay_ms_p50"] < honest["propagation_delay_ms_p75"] < honest["propagation_delay_ms_p90"]
    assert attacked["delivery_ratio"] < honest["delivery_ratio"] == 1


def test_a_form_of_a_plugin_is_imported_and_is_a_kind_of_underlay(folder: Path) -> None:
    command = ("-m", "harness.cli")
    told = python(*command, "import", "halves", "h.txt", "--out", "m.txt", "--plugin", "halves.py", folder=folder)
    assert "one-way delays in ms between 3 hosts" in told
    assert (folder / "m.txt").read_text().splitlines()[-1] == "c,5.0,6.0,0.0"
    settings = ("--set=underlay.kind=halves", "--set=underlay.path=h.txt", "--set=underlay.hosts=3")
    told = python(*command, "plan", "x.toml", "--plugin=halves.py", *settings, "--set=random.degree=2", folder=folder)
    assert 'kind = "halves"' in told


CODES = """
import json
from pathlib import Path
from harness.experiment.loader import load_experiment
from harness.studies.code_hash import code_of
def code(*settings, measures=()):
    return code_of([load_experiment(Path("x.toml"), settings)], measures)
print(json.dumps({
    "plain": code(),
    "measure of Trellis": code(measures=["delivery_ratio"]),
    "deaf.py": code("adversary.kind=deaf"),
    "ring.py": code("underlay.kind=ring"),
    "halves.py": code("underlay.kind=halves", "underlay.path=h.txt"),
    "sea/dissemination.py": code("protocol=wave"),
    "sea/numbers.py": code(measures=["propagation_delay_ms_p75"]),
}))
"""


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The keys of runs with the examples as they are."""
    return script(write_examples(tmp_path_factory.mktemp("codes")), CODES)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (("deaf.py", "halves.py"), {"deaf.py", "halves.py"}),
        (("ring.py", "sea/numbers.py"), {"ring.py", "sea/dissemination.py", "sea/numbers.py"}),
    ],
    ids=["deaf, halves", "ring, sea"],
)
def test_a_changed_plugin_changes_the_keys_of_the_runs_that_use_it(
    folder: Path, codes: dict[str, object], changed: tuple[str, ...], expected: set[str]
) -> None:
    """A plugin is one unit: a changed measure repeats the runs of the protocol in the same package."""
    for name in changed:
        (folder / name).write_text(EXAMPLES[name] + "\nx = 1\n")
    after = script(folder, CODES)
    assert {name for name in codes if codes[name] != after[name]} == expected
    assert codes["plain"] == codes["measure of Trellis"]


LOADED = """
import json
from peer.plugins import loaded
from peer.protocols.registry import ADVERSARIES, PROTOCOLS
found = {"loaded": [each.origin.name for each in loaded()], "wave": "wave" in PROTOCOLS, "deaf": "deaf" in ADVERSARIES}
"""
MORE = """
from metrics.measures.registry import MEASURES
from topologies.kinds import GENERATORS, IMPORTERS
found |= {"ring": "ring" in GENERATORS, "halves": "halves" in IMPORTERS, "p75": "propagation_delay_ms_p75" in MEASURES}
"""
SHOWN = "print(json.dumps(found))\n"


def test_plugins_are_shipped_to_where_their_kinds_are_read(folder: Path) -> None:
    """Agents have neither topologies nor metrics; Spark's workers cannot draw."""
    (folder / "only.py").write_text('from sea.drawings import CHAPTER\nCHAPTER.name = "only"\nCHAPTER.figures = []\n')
    (folder / "sea" / "__init__.py").write_text(EXAMPLES["sea/__init__.py"].replace("CHAPTER = ", "UNUSED = "))
    pack = (
        "import io, pathlib, tarfile; from harness.deployment.package import build_package; "
        "from metrics.executors.shipping import pack_code; "
        "tarfile.open(fileobj=io.BytesIO(build_package().archive)).extractall('agent', filter='data'); "
        "pathlib.Path('zip').mkdir(); pack_code(pathlib.Path('zip'))"
    )
    python("-c", pack, folder=folder, plugins=(*PLUGINS, "only.py"))
    [packed] = (folder / "zip").glob("*.zip")
    for name in ("deaf.py", "ring.py", "halves.py"):
        (folder / name).unlink()
    (folder / "sea").rename(folder / "elsewhere")
    on_agents = script(folder, LOADED + SHOWN, path=folder / "agent", plugins=())
    assert on_agents == {"loaded": ["deaf", "sea"], "wave": True, "deaf": True}
    on_workers = script(folder, LOADED + MORE + SHOWN, path=packed, plugins=())
    used = dict.fromkeys(("wave", "deaf", "ring", "halves", "p75"), True)
    assert on_workers == {"loaded": ["deaf", "halves", "ring", "sea"], **used}
    assert "trellis_plugins/sea/numbers.py" in zipfile.ZipFile(packed).namelist()


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("deaf.py", '"deaf"', '"slow"', "the name 'slow' is taken; choose another one"),
        ("deaf.py", '"deaf"', '"none"', "the name 'none' is taken; choose another one"),
        (
            "deaf.py",
            "ADVERSARY = ",
            "ADVERSARY = 3\nx = ",
            "expected ADVERSARY to be of the class Adversary, got int",
        ),
        (
            "deaf.py",
            "Part, State",
            "Part, State\nimport metrics",
            "deaf.py, line 11: ADVERSARY is used where there is no metrics",
        ),
        ("ring.py", '"ring", make', '"pairs", make', "the name 'pairs' is taken; choose another one"),
        ("ring.py", "import numpy", "import topologies.kinds\nimport numpy", "it imports a registry, which imports"),
        ("halves.py", '"halves", "one', '"uniform", "one', "the name 'uniform' is taken; choose another one"),
        ("halves.py", "IMPORTER = ", 'IMPORTER = "halves:lost"\nx = ', "IMPORTER = 'halves:lost': AttributeError: "),
    ],
)
def test_a_plugin_that_takes_what_it_cannot_have_is_refused(
    folder: Path, name: str, old: str, new: str, expected: str
) -> None:
    assert EXAMPLES[name].count(old) == 1
    (folder / name).write_text(EXAMPLES[name].replace(old, new))
    told = refusal(folder, "check", "x.toml", "--plugin", name)
    assert told.startswith(f"trellis check: plugin {folder / name}: {expected}")


def test_a_section_belongs_to_one_extension(folder: Path) -> None:
    (folder / "ring.py").write_text(EXAMPLES["ring.py"].replace('"ring", make', '"deaf", make'))
    told = refusal(folder, "check", "x.toml", "--plugin=ring.py", "--plugin=deaf.py")
    assert told == "trellis check: a plugin uses the name of the section deaf; choose another one\n"


REFUSED = (
    ("numbers.py", '"propagation_delay_ms_p75"', '"delivery_ratio"', "the name 'delivery_ratio' is taken"),
    ("numbers.py", '"propagation_delay_ms_p75"', '"a b"', "expected a Python identifier as the name of a measure"),
    (
        "numbers.py",
        "    DELIVERIES, ",
        '    type(DELIVERIES)("mine"), ',
        "the measure 'propagation_delay_ms_p75' is in no family of metrics.measures.registry",
    ),
    ("drawings.py", '"sea", "Sea"', '"network", "Sea"', "the name 'network' is taken; choose another one"),
    ("drawings.py", "sea_hops", "delay_cdf", "the name 'delay-cdf' is taken; choose another one"),
    ("drawings.py", "_p75", "_p74", "the chapter 'sea' has the unknown measure 'propagation_delay_ms_p74'"),
)


def test_a_measure_or_figure_that_cannot_be_added_is_refused(folder: Path) -> None:
    """Each plugin is imported by a fork of one process, which has imported the libraries of all."""
    for number, (name, old, new, _) in enumerate(REFUSED):
        assert EXAMPLES[f"sea/{name}"].count(old) == 1
        shutil.copytree(folder / "sea", folder / f"{number}/sea")
        (folder / f"{number}/sea" / name).write_text(EXAMPLES[f"sea/{name}"].replace(old, new))
    found = script(
        folder,
        f"""
        import json, os
        import matplotlib.figure, matplotlib.style, numpy, pandas, pyarrow.parquet
        def refusal(plugin):
            reading, writing = os.pipe()
            if os.fork() == 0:
                os.environ["{VARIABLE}"] = os.path.abspath(plugin)
                from peer.plugins import PluginError
                try:
                    import metrics.report.figures.registry
                    os.write(writing, b"nothing")
                except PluginError as error:
                    os.write(writing, str(error).encode())
                finally:
                    os._exit(0)
            os.close(writing)
            os.wait()
            return os.read(reading, 10_000).decode()
        print(json.dumps({{"told": [refusal(f"{{number}}/sea") for number in range({len(REFUSED)})]}}))
        """,
        plugins=(),
    )
    told = found["told"]
    assert isinstance(told, list)
    for number, (_, _, _, expected) in enumerate(REFUSED):
        assert told[number].startswith(f"plugin {folder / f'{number}/sea'}: {expected}"), told[number]
