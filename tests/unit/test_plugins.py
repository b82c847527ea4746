"""Protocols from outside the repository: how they are named, what is refused, and where they are shipped and hashed."""

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

import peer.protocols.registry  # noqa: F401  registers the frames of all protocols of Trellis
from harness.plugins import name_plugins
from peer.core.frames import USER_KINDS, kind_names
from peer.plugins import VARIABLE

ROOT = Path(__file__).parents[2]

PLUGIN = """
from typing import ClassVar
from peer.core.dissemination.flood import Flood, FloodParameters
from peer.core.frames import Frame, register
from peer.protocols.description import Composition, Description
class Wave(Flood): pass
@register
class Ripple(Frame, frozen=True):
    kind: ClassVar[int] = 200
PROTOCOL = Description(name="wave", composition=Composition({"name": "random"}, {"name": "wave"}),
                       parts={"dissemination": Wave}, parameters=FloodParameters)
"""
EXPERIMENT = 'name = "x"\nprotocol = "wave"\ntestbed = "simulated"\nunderlay.hosts = 10\n'


def python(*words: str, folder: Path, plugins: str = "", path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(path), VARIABLE: plugins}
    return subprocess.run(
        [sys.executable, "-P", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "harness.cli", "check", *words, folder=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ocean.py").write_text(PLUGIN)
    (tmp_path / "wave.toml").write_text(EXPERIMENT)
    (tmp_path / "named.toml").write_text('plugins = ["ocean.py"]\n' + EXPERIMENT)
    return tmp_path


def test_trellis_leaves_the_kinds_of_users_alone() -> None:
    assert not set(kind_names()) & set(USER_KINDS)


@pytest.mark.parametrize("words", [["wave.toml", "--plugin", "ocean.py"], ["named.toml"]], ids=["option", "key"])
def test_a_plugin_is_named_by_the_option_or_by_the_key(folder: Path, words: list[str]) -> None:
    done = check(folder, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{words[0]}: valid: x, 10 hosts")


def test_the_key_is_relative_to_its_file(folder: Path) -> None:
    (folder / "below").mkdir()
    done = python("-m", "harness.cli", "check", "../named.toml", folder=folder / "below")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_is_a_plugin(folder: Path) -> None:
    (folder / "sea").mkdir()
    (folder / "ocean.py").rename(folder / "sea" / "water.py")
    (folder / "sea" / "__init__.py").write_text("from sea.water import PROTOCOL\n")
    assert check(folder, "wave.toml", "--plugin", "sea").returncode == 0


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("missing.py", None, "expected a Python file, or a folder with __init__.py"),
        ("two words.py", PLUGIN, "expected a file NAME.py or a folder NAME; NAME is a Python identifier"),
        ("json.py", PLUGIN, "there is another module json; rename the plugin"),
        ("bad.py", "raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("bad.py", "raise SystemExit(0)", "SystemExit: 0"),
        ("bad.py", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("bad.py", "x = (", "SyntaxError: '(' was never closed (bad.py, line 1)"),
        ("bad.py", "x = 1", "it defines no PROTOCOL, ADVERSARY, UNDERLAY, IMPORTER, MEASURE or CHAPTER"),
        ("bad.py", "PROTOCOL = 1", "expected PROTOCOL to be of the class Description, got int"),
        ("bad.py", PLUGIN.replace('name="wave"', 'name="gossipsub"'), "the name 'gossipsub' is taken; choose another"),
        ("bad.py", PLUGIN.replace('name="wave"', 'name="cyclon"'), "the name 'cyclon' is taken; choose another one"),
        ("bad.py", PLUGIN.replace("= 200", "= 150"), "Ripple: expected a kind in 192-255, got 150"),
        ("bad.py", PLUGIN.replace("= 200", "= 16"), "ValueError: Ripple: kind 16 belongs to Data"),
        ("bad.py", PLUGIN.replace('"random"', '"stan2"'), "'wave' has no overlay of its own and cannot use 'stan2'"),
        (
            "bad.py",
            PLUGIN.replace('"random"', '"vitis"'),
            "'wave' has no overlay of its own and cannot use 'vitis'",
        ),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_refused_on_one_line(
    folder: Path, name: str, content: str | None, expected: str
) -> None:
    if content is not None:
        (folder / name).write_text(content)
    done = check(folder, "wave.toml", "--plugin", name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"trellis check: plugin {folder / name}: {expected}")
    assert done.stderr.count("\n") == 1


def test_a_protocol_cannot_have_the_name_of_a_general_section(folder: Path) -> None:
    (folder / "ocean.py").write_text(PLUGIN.replace('"wave"', '"workload"'))
    done = check(folder, "wave.toml", "--plugin", "ocean.py")
    assert done.returncode == 2
    assert done.stderr == ("trellis check: a plugin uses the name of the section workload; choose another one\n")


def test_two_plugins_cannot_share_a_kind_of_frames(folder: Path) -> None:
    (folder / "other.py").write_text(PLUGIN.replace('"wave"', '"tide"').replace("Ripple", "Ebb"))
    done = check(folder, "wave.toml", "--plugin", "ocean.py", "--plugin", "other.py")
    assert done.stderr == f"trellis check: plugin {folder / 'other.py'}: ValueError: Ebb: kind 200 belongs to Ripple\n"


def test_set_cannot_name_a_plugin_that_the_command_did_not_know(folder: Path) -> None:
    done = check(folder, "named.toml", "--set", 'plugins=["other.py"]')
    assert done.returncode == 2
    assert "other.py was not loaded when the command started" in done.stderr


def test_a_verb_that_reads_runs_loads_nothing_that_a_file_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert name_plugins("report", ["report", str(folder / "named.toml")]) == ["report", str(folder / "named.toml")]
    assert os.environ[VARIABLE] == ""
    name_plugins("check", ["check", str(folder / "named.toml")])
    assert os.environ[VARIABLE] == str(folder / "ocean.py")


def test_an_installed_distribution_adds_its_protocol(folder: Path) -> None:
    site = folder / "site"
    (site / "ocean-1.2.dist-info").mkdir(parents=True)
    (folder / "ocean.py").rename(site / "ocean.py")
    (site / "ocean-1.2.dist-info" / "METADATA").write_text("Name: ocean\nVersion: 1.2\n")
    (site / "ocean-1.2.dist-info" / "entry_points.txt").write_text("[trellis.protocols]\nwave = ocean\n")
    (folder / "show.py").write_text(SHOW)
    done = python("show.py", folder=folder, path=Path(f"{ROOT}{os.pathsep}{site}"))
    assert done.stderr == ""
    shown = json.loads(done.stdout)
    assert shown["origin"] == {"name": "ocean", "version": "ocean 1.2", "path": str(site / "ocean.py")}
    assert shown["shipped"] == ["trellis_plugins/ocean.py"]
    assert shown["wave"]


SHOW = textwrap.dedent(
    """
    import json
    from peer.plugins import loaded, shipped_files
    from peer.protocols.registry import PROTOCOLS
    from msgspec import to_builtins
    origin = to_builtins(loaded()[0].origin)
    sha256 = origin.pop("sha256")
    shown = {"origin": origin, "sha256": sha256, "shipped": list(shipped_files({'peer'})), "wave": "wave" in PROTOCOLS}
    print(json.dumps(shown))
    """
)


def test_shipped_packages_bring_the_plugin_with_the_same_hash(folder: Path) -> None:
    """In the folder of an agent and in the zip of Spark's workers, without the file and the variable."""
    (folder / "show.py").write_text(SHOW)
    pack = (
        "import io, pathlib, tarfile; from harness.deployment.package import build_package; "
        "from metrics.executors.shipping import pack_code; "
        "tarfile.open(fileobj=io.BytesIO(build_package().archive)).extractall('agent', filter='data'); "
        "pathlib.Path('zip').mkdir(); pack_code(pathlib.Path('zip'), ['peer'])"
    )
    assert python("-c", pack, folder=folder, plugins=str(folder / "ocean.py")).stderr == ""
    expected = json.loads(python("show.py", folder=folder, plugins=str(folder / "ocean.py")).stdout)
    [packed] = (folder / "zip").glob("*.zip")
    (folder / "ocean.py").unlink()
    for place in (folder / "agent", packed):
        done = python("show.py", folder=folder, path=place)
        assert done.stderr == ""
        shown = json.loads(done.stdout)
        assert shown["wave"]
        assert shown["sha256"] == expected["sha256"]
    assert "trellis_plugins/ocean.py" in zipfile.ZipFile(packed).namelist()


def test_a_plugin_that_changes_is_shipped_as_it_was_loaded(folder: Path) -> None:
    """What docs/failures.md says of code that changes during a run."""
    changed = (
        "import pathlib; from peer.plugins import loaded, shipped_files; [plugin] = loaded(); "
        "pathlib.Path('ocean.py').write_text('broken('); [shipped] = shipped_files({'peer'}).values(); "
        "assert shipped == pathlib.Path('kept').read_bytes(); print(plugin.origin.sha256)"
    )
    (folder / "kept").write_text(PLUGIN)
    (folder / "show.py").write_text(SHOW)
    before = json.loads(python("show.py", folder=folder, plugins=str(folder / "ocean.py")).stdout)
    done = python("-c", changed, folder=folder, plugins=str(folder / "ocean.py"))
    assert (done.stdout.strip(), done.stderr) == (before["sha256"], "")


CODES = textwrap.dedent(
    """
    from harness.studies.code_hash import code_of_protocols
    print(*(code_of_protocols(frozenset(names)) for names in (["wave"], ["wave", "random"], ["random"])))
    """
)


def test_a_changed_plugin_changes_the_keys_of_its_runs_and_of_no_others(folder: Path) -> None:
    (folder / "codes.py").write_text(CODES)
    before = python("codes.py", folder=folder, plugins=str(folder / "ocean.py")).stdout.split()
    (folder / "ocean.py").write_text(PLUGIN + "x = 1\n")
    after = python("codes.py", folder=folder, plugins=str(folder / "ocean.py")).stdout.split()
    assert len(before) == 3
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, False, True]


def test_the_plan_names_the_parameters_of_a_borrowed_overlay(folder: Path) -> None:
    words = ["-m", "harness.cli", "plan", "named.toml", "--set", "random.degree=3"]
    done = python(*words, folder=folder)
    assert "[random]\ndegree = 3" in done.stdout
