"""A program as a peer tries what a hostile one would; docs/limitations.md lists what it can and cannot do."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.run_experiment import QUICKLY, ROOT, trellis
from tests.integration.test_sandbox_rootless import as_plain_user

pytestmark = [pytest.mark.root, pytest.mark.slow]

CREDENTIAL = "planted-in-the-environment"

EXPERIMENT = """
name = "intruder"
protocol = "random"
[underlay]
kind = "uniform"
hosts = 3
delay_ms = 1
[random]
degree = 2
[workload]
topics = 1
publish_rate_per_s = 5
warmup_s = 2
duration_s = 6
cooldown_s = 1
[interests]
ratio = 1.0
[peer]
metrics = false
command = {command}
[capture]
enabled = false
"""


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """A folder of the user that no sandbox hides, and one for the run in the machine's /tmp. Everybody may use both."""
    with tempfile.TemporaryDirectory(dir="/srv") as home, tempfile.TemporaryDirectory(prefix="trellis-test-") as made:
        for folder in (home, made):
            Path(folder).chmod(0o777)
        yield Path(home), Path(made)


def documented() -> dict[str, str]:
    """The table of docs/limitations.md: what is tried -> can or cannot."""
    text = (ROOT / "docs/limitations.md").read_text().partition("| a peer's program tries to |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (.*) \| (can|cannot) \|$", text, re.MULTILINE))


def run_as_root(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def run_as_plain_user(command: list[str]) -> subprocess.CompletedProcess[str]:
    return as_plain_user("0666", command)


@pytest.mark.parametrize("run", [run_as_root, pytest.param(run_as_plain_user, marks=pytest.mark.long)])
def test_a_peer_can_do_what_the_documents_say_and_no_more(
    run: Callable[[list[str]], subprocess.CompletedProcess[str]],
    folders: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, made = folders
    users_file, hidden, run_dir = home / "file", made / "hidden", made / "run"
    for path in (users_file, hidden):
        path.write_text("of the user")
        path.chmod(0o666)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIAL)
    program = [sys.executable, "-I", str(Path(__file__).with_name("intruder.py"))]
    command = [*program, "{spec}", str(run_dir), str(users_file), str(hidden), CREDENTIAL[::-1]]
    (made / "intruder.toml").write_text(EXPERIMENT.replace("{command}", json.dumps(command)))
    done = run(trellis("run", made / "intruder.toml", *QUICKLY, "--out", run_dir))
    logs = [run_dir / f"logs/{node}.log" for node in range(3)]
    assert all(log.exists() for log in logs), done.stderr
    assert [log.read_text() for log in logs if not log.read_text().startswith("{")] == []
    found = [json.loads(log.read_text().splitlines()[0]) for log in logs]
    seen = [{name: "can" if could else "cannot" for name, could in results.items()} for results in found]
    assert seen == [documented()] * 3
    assert users_file.read_text() == "of the user"
