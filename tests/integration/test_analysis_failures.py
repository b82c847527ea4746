"""An analysis whose disk fills up, or whose store is lost for a while: it is refused, and old results stay whole."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from metrics.analysis import analyse
from metrics.copying import copy_run
from metrics.rundir import RunDir, read_pointer
from metrics.storage import StoreError
from metrics.storage.parquet import read_parquet
from tests.fabricate import Fabrication
from tests.lost_service import LostService
from tests.object_store import KEYS, make_bucket, publish, s3_server

FULL_DISK = """
import sys
from pathlib import Path

from harness.cli import main
from metrics.analysis import analyse
from tests.integration.test_analysis_failures import digest_results

run, master = Path(sys.argv[1]), sys.argv[2]
print("verdict:", analyse(run, master, page=False).verdict)
before, filler = digest_results(run), run / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
with filler.open("r+b") as file:
    file.truncate(filler.stat().st_size - (128 << 10))  # a few parts fit
print(main(["report", str(run), "--master", master]))
print(digest_results(run) == before, sorted(path.name for path in run.glob(".analysis-*")))
filler.unlink()
print("verdict:", analyse(run, master, page=False).verdict)
"""


def digest_results(run: Path) -> dict[str, str]:
    """The content of the results of a run."""
    found = [run / "summary.json", *run.rglob("tables/**/*"), *run.rglob("report/**/*")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found if path.is_file()}


@pytest.mark.root
@pytest.mark.parametrize(
    "master",
    ["here", pytest.param("local[2]", marks=[pytest.mark.spark, pytest.mark.slow, pytest.mark.long])],
)
def test_a_full_disk_is_said_and_leaves_the_old_results_whole(tmp_path: Path, master: str) -> None:
    run_dir = Fabrication(seed=5, nodes=6, topics=3, messages=30).write(tmp_path / "run")
    disk = 'mkdir "$1.disk"; mount -t tmpfs -o size=16m tmpfs "$1.disk"; cp -a "$1/." "$1.disk"; '
    disk += 'mount --bind "$1.disk" "$1"; run="$1"; shift; exec "$@"'
    argv = ["unshare", "--mount", "sh", "-ec", disk, "sh", str(run_dir), sys.executable, "-c", FULL_DISK]
    root = Path(__file__).parents[2]
    done = subprocess.run([*argv, str(run_dir), master], cwd=root, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line == "1" or line.startswith(("True", "verdict: "))]
    assert said[1:3] == ["1", "True []"], done.stdout + done.stderr
    assert said[0] == said[3], "it is the same afterwards"
    [refused] = [line for line in done.stderr.splitlines() if "trellis report:" in line]
    assert "No space left on device" in refused


FEW = ("messages", "deliveries", "sharing", "checks")
"""Tables that are compared: a request to the server takes long."""


def rows(run: RunDir, name: str) -> list[str]:
    return sorted(map(str, read_parquet(run.tables / f"{name}.parquet").to_pylist()))


def test_a_store_that_is_lost_for_10_s_refuses_and_keeps_the_old_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is lost when the new results are being written, and is back later."""
    local = Fabrication(seed=5, nodes=6, topics=3, messages=30).write(tmp_path / "run")
    with s3_server() as url, LostService(url, lost_s=10) as service:
        for name, value in (KEYS | {"AWS_ENDPOINT_URL": service.url}).items():
            monkeypatch.setenv(name, value)
        stored = make_bucket("lost") / "run"
        copy_run(local, stored)
        analyse(local, "here", page=False)
        publish(local, stored)
        old, pointer = RunDir(stored), read_pointer(stored)
        kept = {name: rows(old, name) for name in FEW}
        service.lose_at(b"PUT /lost/run/analyses/")
        with pytest.raises(StoreError, match=r"s3://lost/run/analyses/.*: the store cannot be used"):
            analyse(stored, "here", page=False)
        assert service.was_lost
        service.await_back()
        assert read_pointer(stored) == pointer
        assert {name: rows(RunDir(stored), name) for name in FEW} == kept
        analyse(stored, "here", page=False)
        assert read_pointer(stored) != pointer
        assert {name: rows(RunDir(stored), name) for name in FEW} == kept
