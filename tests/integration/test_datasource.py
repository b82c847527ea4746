"""The Data Source on Spark's masters: the same rows as the kernels give, wherever the code has to be shipped to."""

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from metrics.flows.reading import plan_flow_tasks
from metrics.pcap.listing import list_captures
from metrics.pcap.schemas import TRACED
from metrics.pcap.tables import Reading, read_tables
from peer.core.frames import Data
from tests.synthetic_capture import ACK, OUTBOUND, SYN, Packet, pcapng, random_frames, transmit
from tests.synthetic_capture import Path as NetworkPath

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
TABLES = ("conns", "frames", "spans", "wire", "captures")
START_NS = 1_700_000_000 * 10**9


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with a large and two small captures of several connections each, and what the peers traced."""
    folder = tmp_path_factory.mktemp("captures")
    rng = random.Random(7)
    rows: list[dict[str, object]] = []
    for file, connections in enumerate((12, 2, 2)):
        packets: list[Packet] = []
        for port in range(40000, 40000 + connections):
            src, dst = f"10.0.{file}.1", f"10.0.{file}.2"
            frames = random_frames(rng, 10, publisher=port)
            head = Packet(START_NS, 0, OUTBOUND, src, port, dst, 7000, 99, 0, SYN)
            packets += [head, *transmit(rng, b"".join(data for _, _, data in frames), 99, head, NetworkPath())]
            packets += [Packet(START_NS + 1, 1, 1, src, port, dst, 7000, 99, 0, SYN)]
            packets += [Packet(START_NS + 2, 1, OUTBOUND, dst, 7000, src, port, 0, 100, SYN | ACK)]
            for off, frame, data in frames:
                known = {"conn": f"{src}:{port}-{dst}:7000", "direction": "orig", "off": off, "len_bytes": len(data)}
                rows.append(
                    known
                    | {
                        "kind": Data.kind,
                        "topics": list(frame.topics),
                        "message_id": frame.message_id,
                        "ts_ns": START_NS,
                    }
                )
        packets = [replace(each, host=2 * file + each.host) for each in packets]
        packets.sort(key=lambda each: each.ts_ns)
        (folder / f"{file}.pcapng").write_bytes(b"".join(pcapng(packets, (2 * file, 2 * file + 1), snaplen=96)))
    traced = folder / "traced.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=TRACED), traced)
    return folder, traced


@pytest.fixture(scope="module")
def expected(captures: tuple[Path, Path]) -> dict[str, list[object]]:
    """What the kernels make of the same files, without Spark."""
    folder, traced = captures
    digests: dict[str, list[object]] = {}
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.pcapng")):
        for reading in (Reading(("packets",)), Reading(TABLES, traced=str(traced))):
            for name, table in read_tables(path, reading):
                found.setdefault(name, []).extend(repr(tuple(row.values())) for row in table.to_pylist())
    flows = [row for task in plan_flow_tasks(list_captures(folder).captures, {}, 2) for row in task.read().to_pylist()]
    found["flows"] = [repr(tuple(row.values())) for row in flows]
    for name, texts in found.items():
        digests[name] = [len(texts), hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()]
    assert all(digests[name][0] for name in (*TABLES, "packets", "flows"))
    return digests


def read_with(master: str, captures: tuple[Path, Path], tmp_path: Path) -> dict[str, object]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    script = Path(__file__).with_name("datasource_session.py")
    command = [sys.executable, str(script), master, *map(str, captures)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("files") == ["0.pcapng", "1.pcapng", "2.pcapng"]
    assert "wrong.pcap: not a capture: expected a pcap or pcapng file" in str(found.pop("refused"))
    assert "1 left out (no regular file, or not named as a capture: .pcap, .pcapng, .cap" in done.stderr
    return found


@pytest.mark.long
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_rows_equal_the_kernels(
    master: str, captures: tuple[Path, Path], expected: dict[str, list[object]], tmp_path: Path
) -> None:
    found = read_with(master, captures, tmp_path)
    assert found.pop("partitions") == 2
    assert found == expected


@contextmanager
def daemon(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Spark daemon in the foreground, ended with the block."""
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(log.parent),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    environment.pop("PYTHONPATH", None)
    command = [str(home / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(300)


def await_line(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """What the daemon's log says of itself, once it says it."""
    with subprocess.Popen(
        ["tail", "-n", "+1", "-f", f"--pid={process.pid}", str(log)], stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        for line in tail.stdout:
            if match := re.search(pattern, line):
                tail.terminate()
                return match.group(1)
    raise AssertionError(f"{pattern} not in {log.read_text()[-2000:]}")


@pytest.mark.long
def test_rows_equal_the_kernels_on_a_standalone_cluster(
    captures: tuple[Path, Path], expected: dict[str, list[object]], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        process = stack.enter_context(daemon("org.apache.spark.deploy.master.Master", *options, log=log))
        url = await_line(log, r"Starting Spark master at (spark://\S+)", process)
        for number in range(2):
            log = tmp_path / f"worker{number}.log"
            options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g")
            process = stack.enter_context(daemon("org.apache.spark.deploy.worker.Worker", *options, url, log=log))
            await_line(log, r"(Successfully registered) with master", process)
        found = read_with(url, captures, tmp_path)
    assert found.pop("partitions") == 2
    assert found == expected
