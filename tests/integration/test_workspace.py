"""The work folder on a machine: whom it trusts, and what it removes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.deployment import workspace
from harness.deployment.package import build_package
from harness.deployment.workspace import Refused

pytestmark = pytest.mark.root

STRANGER = 65534


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder whose path is short enough for sockets below it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def unpack(folder: Path) -> tuple[Path, str]:
    """A package that is there, and its hash."""
    package = build_package()
    place = folder / "packages" / package.sha256[:16]
    place.mkdir(parents=True)
    (folder / "package.tar.gz").write_bytes(package.archive)
    subprocess.run(["tar", "-xzf", folder / "package.tar.gz", "-C", place, "--no-same-owner"], check=True)
    return place, package.sha256


def own(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


def link_away(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)
    own(path)


@pytest.mark.parametrize("spoil", [own, open_to_all, link_away])
@pytest.mark.parametrize("place", ["", "work"])
def test_a_folder_that_others_can_change_is_refused(home: Path, place: str, spoil: Callable[[Path], None]) -> None:
    above = home / "above"
    (above / "work").mkdir(parents=True)
    spoil(above / place)
    with pytest.raises(Refused, match="above"):
        workspace.prepare(str(above / "work"))


def test_a_stranger_who_made_the_folder_first_gets_nothing_run(home: Path) -> None:
    """The default of earlier versions: a name that everybody knows, in a folder where everybody may make it."""
    home.chmod(0o1777)
    subprocess.run(["setpriv", f"--reuid={STRANGER}", "--clear-groups", "mkdir", home / "trellis"], check=True)
    with pytest.raises(Refused, match="belongs to user"):
        workspace.prepare(str(home / "trellis"))


def test_a_new_folder_is_for_its_user_alone_and_tilde_is_the_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    assert workspace.prepare("~/.trellis/deep") == str(home / ".trellis/deep")
    assert (home / ".trellis/deep").stat().st_mode & 0o777 == 0o700
    assert workspace.prepare(str(home / ".trellis/deep/")) == str(home / ".trellis/deep")


def test_a_path_too_long_for_the_agents_sockets_is_refused(home: Path) -> None:
    with pytest.raises(Refused, match="too long"):
        workspace.prepare(str(home / ("x" * 70)))
    workspace.prepare(str(home / ("x" * 50)))


def test_a_package_is_known_by_its_content(home: Path) -> None:
    place, sha256 = unpack(home)
    assert workspace.package(str(place), sha256)
    assert not workspace.package(str(place.with_name("other")), sha256)


def add_line(package: Path) -> None:
    with (package / "peer/runtime/agent.py").open("a") as file:
        file.write("print('mine')\n")


def add_file(package: Path) -> None:
    (package / "sitecustomize.py").write_text("print('mine')\n")


def swap_link(package: Path) -> None:
    agent = package / "peer/runtime/agent.py"
    agent.rename(package.parent / "agent.py")
    agent.symlink_to(package.parent / "agent.py")


def give_file_away(package: Path) -> None:
    own(package / "peer/runtime/agent.py")


def open_folder(package: Path) -> None:
    open_to_all(package / "peer/runtime")


def empty(package: Path) -> None:
    shutil.rmtree(package)
    package.mkdir()


@pytest.mark.parametrize("spoil", [add_line, add_file, swap_link, give_file_away, open_folder, empty, own, link_away])
def test_a_package_that_is_not_what_its_name_says_is_refused(home: Path, spoil: Callable[[Path], None]) -> None:
    place, sha256 = unpack(home)
    spoil(place)
    with pytest.raises(Refused):
        workspace.package(str(place), sha256)


def test_of_two_runs_that_ship_the_same_package_both_have_it(home: Path) -> None:
    place, sha256 = unpack(home)
    part = shutil.copytree(place, place.with_suffix(".part"))
    assert workspace.place(str(part), str(place), sha256)
    assert not part.exists()
    part = shutil.copytree(place, place.with_suffix(".part"))
    add_line(part)
    with pytest.raises(Refused, match="differs from what was sent"):
        workspace.place(str(part), str(place.with_name("new")), sha256)


def of_run(folder: Path) -> subprocess.Popen[bytes]:
    """A process of a run that nothing ends, in a session of its own."""
    argv = ["sh", "-c", "trap '' TERM HUP; sleep 60 & wait"]
    environment = {**os.environ, workspace.RUN_VARIABLE: str(folder)}
    return subprocess.Popen(argv, env=environment, start_new_session=True)


def hold(folder: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", Path(workspace.__file__).read_text(), "hold", str(folder)]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"true\n"
    return holder


def test_a_held_folder_vanishes_with_its_processes_when_the_holder_is_left(home: Path) -> None:
    left, kept = home / "left", home / "kept"
    holders = [hold(folder) for folder in (left, kept)]
    mine, other = of_run(left), of_run(kept)
    (left / "trace").mkdir()
    for holder, words in zip(holders, (b"", b"keep\n"), strict=True):
        holder.communicate(words, timeout=300)
        assert holder.returncode == 0
    assert not left.exists()
    assert mine.wait(300) == -signal.SIGKILL
    assert kept.exists()
    assert other.poll() is None
    assert workspace.remove(str(kept))
    assert other.wait(300) == -signal.SIGKILL
    assert not kept.exists()


def test_a_folder_that_exists_is_not_made_again(home: Path) -> None:
    with pytest.raises(FileExistsError):
        workspace.make(str(home))


def listen(folder: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "agent.sock"))
    server.listen()
    return server


def test_the_folder_of_a_live_agent_is_never_removed(home: Path) -> None:
    folders = {name: home / (name * 16) for name in "abc"}
    for name, folder in folders.items():
        folder.mkdir()
        if name != "b":
            os.utime(folder, (0, 0))
    (home / "packages").mkdir()
    with listen(folders["a"]):
        os.utime(folders["a"], (0, 0))
        os.utime(folders["a"] / "agent.sock", (0, 0))
        with pytest.raises(Refused, match="has a running agent"):
            workspace.remove(str(folders["a"]))
        answer = workspace.clean(str(home))
        assert answer == {"removed": [str(folders["c"])], "kept": [str(folders["a"]), str(folders["b"])]}
    assert workspace.clean(str(home))["removed"] == [str(folders["a"])], "its socket is dead now"
    assert sorted(path.name for path in home.iterdir()) == ["b" * 16, "packages"]


def test_what_an_ended_run_has_just_written_is_left_for_its_collection(home: Path) -> None:
    folder = home / ("d" * 16)
    folder.mkdir()
    (folder / "exits.jsonl").touch()
    os.utime(folder, (0, 0))
    assert workspace.clean(str(home))["removed"] == []
    os.utime(folder / "exits.jsonl", (0, time.time() - workspace.SETTLED_S - 1))
    assert workspace.clean(str(home))["removed"] == [str(folder)]
