"""From capture files to tables: packets a second, beside tshark and scapy on the same file, and one core against two.

Everything runs on a synthetic run directory (``_synthetic_run``), header-only captures with the traces that match.
tshark gets the settings that make it fastest here: no name resolution, no heuristic dissection of the payload, no
reassembly, no sequence analysis. It and scapy read a small file of their own, which the kernel reads, too. The gain of
a second core is to be judged by ``plain_loop_2_over_1_cores``, what a loop without memory or disk gains beside it.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from _synthetic_run import OFFSET_NS, PORT, write_run
from scapy.layers.inet import IP, TCP
from scapy.utils import PcapReader

from metrics.pcap.schemas import TRACED
from metrics.pcap.tables import Reading, read_tables

PACKETS, FULL_PACKETS, SMALL_PACKETS = 1_000_000, 10_000_000, 100_000
EVERYTHING = ("conns", "frames", "spans", "wire", "captures")
_ROUNDS = 3
_TSHARK_FIELDS = (
    "frame.time_epoch", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "tcp.flags", "tcp.seq_raw", "tcp.ack_raw",
    "tcp.len", "frame.len", "frame.cap_len",
)  # fmt: skip
_TSHARK_OFF = ("tcp.desegment_tcp_streams", "tcp.analyze_sequence_numbers", "tcp.calculate_timestamps")


def main(argv: list[str] | None = None) -> int:
    """Measure and print; exits 0 whatever the figures are, 2 without tshark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--full", action="store_true", help=f"{FULL_PACKETS:,} packets instead of {PACKETS:,}")
    parser.add_argument("--packets", type=int, help="any other number of packets")
    given = parser.parse_args(argv)
    if shutil.which("tshark") is None:
        print("pipeline: needs tshark to compare with", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        result = measure(Path(folder), given.packets or (FULL_PACKETS if given.full else PACKETS))
    print(
        json.dumps(result) if given.json else "\n".join(f"{name:>44}  {value:,.4g}" for name, value in result.items())
    )
    return 0


def measure(folder: Path, packets: int) -> dict[str, float]:
    """Rates in packets/s and MB/s, durations in s, and the ratios between them."""
    result = {f"small_file_{name}": value for name, value in _compare(folder / "small").items()}
    start = time.perf_counter()
    count = write_run(folder / "run", packets)
    captures = sorted((folder / "run" / "capture").iterdir())
    megabytes = sum(path.stat().st_size for path in captures) / 1e6
    result |= {"packets": float(count), "capture_mb": megabytes, "generate_s": time.perf_counter() - start}
    traced = _write_traced(folder / "run" / "trace", folder / "traced.parquet")
    for name, reading in (("packets", Reading(("packets",))), ("reassembly", Reading(EVERYTHING, traced=traced))):
        seconds = _time(lambda reading=reading: _drain(captures, reading))
        result |= {f"kernel_{name}_per_s": count / seconds, f"kernel_{name}_mb_per_s": megabytes / seconds}
    for name, durations in _time_spark_by_cores(captures[0].parent, traced).items():
        result |= {f"spark_{name}_{cores}_cores_per_s": count / seconds for cores, seconds in durations.items()}
        result[f"spark_{name}_2_over_1_cores"] = durations[1] / durations[2]
    result["plain_loop_2_over_1_cores"] = _measure_free_cores()
    for name, master in (("here", "here"), ("spark", "local[*]")):
        seconds, megabytes = _time_build(folder / "run", master)
        result |= {f"all_tables_{name}_s": seconds, f"all_tables_{name}_peak_mb": megabytes}
    return result


def _compare(folder: Path) -> dict[str, float]:
    """The same small file read by the kernel, tshark and scapy, one after the other."""
    count = write_run(folder, SMALL_PACKETS)
    captures = sorted((folder / "capture").iterdir())
    kernel = count / _time(lambda: _drain(captures, Reading(("packets",))))
    tshark = count / _time(lambda: [_run_tshark(each) for each in captures])
    scapy = count / _time(lambda: [_read_with_scapy(each) for each in captures], rounds=1)
    rates = {"kernel_per_s": kernel, "tshark_per_s": tshark, "scapy_per_s": scapy}
    return rates | {"kernel_over_tshark": kernel / tshark, "kernel_over_scapy": kernel / scapy}


def _time(action: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """The shortest duration: what else runs on the machine only ever adds to it."""
    durations = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        durations.append(time.perf_counter() - start)
    return min(durations)


def _drain(captures: list[Path], reading: Reading) -> int:
    return sum(len(table) for path in captures for _, table in read_tables(path, reading))


def _run_tshark(capture: Path) -> None:
    options = [f"-o{name}:FALSE" for name in _TSHARK_OFF]
    fields = [part for name in _TSHARK_FIELDS for part in ("-e", name)]
    command = ["tshark", "-n", "-r", str(capture), "-d", f"tcp.port=={PORT},data", *options, "-T", "fields", *fields]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _read_with_scapy(capture: Path) -> None:
    with PcapReader(str(capture)) as reader:
        for packet in reader:
            ip, tcp = packet[IP], packet[TCP]
            _ = (packet.time, ip.src, ip.dst, tcp.sport, tcp.dport, int(tcp.flags), tcp.seq, tcp.ack, ip.len)


def _write_traced(traces: Path, target: Path) -> str:
    """The frames that the traces say were sent, as the analysis stages them."""
    events = pa.concat_tables(
        [pj.read_json(path) for path in sorted(traces.glob("*.jsonl"))], promote_options="default"
    )
    sent = events.filter(pc.equal(events["event"], "send")).select(TRACED.names).cast(TRACED)
    pq.write_table(sent.sort_by([("conn", "ascending"), ("off", "ascending")]), target, row_group_size=100_000)
    return str(target)


def _time_spark(captures: Path, traced: str, cores: int) -> dict[str, float]:
    """Durations by table: warm jobs, a task a core, whose rows are thrown away; nothing runs on any other core."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    pa.set_cpu_count(cores)
    from metrics.pcap.source import register
    from metrics.session import session

    with session() as spark:
        register(spark)
        options = {"path": str(captures), "epoch_offset_ns": str(OFFSET_NS), "parallelism": str(cores)}
        whole = {"tables": ",".join(EVERYTHING), "traced": traced}
        durations = {}
        for name, chosen in (("packets", {"tables": "packets"}), ("reassembly", whole)):
            frame = spark.read.format("pcap").options(**options, **chosen).load()
            action = frame.write.format("noop").mode("overwrite").save
            action()  # the first job of a session is slow
            durations[name] = _time(action)
        return durations


def _time_spark_by_cores(captures: Path, traced: str) -> dict[str, dict[int, float]]:
    """The same by table and number of cores, each number in a process of its own that has so many."""
    durations: dict[str, dict[int, float]] = {}
    for cores in (1, 2):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            for name, seconds in alone.submit(_time_spark, captures, traced, cores).result().items():
                durations.setdefault(name, {})[cores] = seconds
    return durations


def _measure_free_cores() -> float:
    """What a second process gains for a plain loop at this moment: on a busy machine nothing gains more."""
    loop = [sys.executable, "-c", "x = 0\nfor i in range(20_000_000): x += i"]

    def run(processes: int) -> None:
        started = [subprocess.Popen(loop) for _ in range(processes)]
        for process in started:
            process.wait()

    return 2 * _time(lambda: run(1)) / _time(lambda: run(2))


def _time_build(run: Path, master: str) -> tuple[float, float]:
    """All tables of the run directory in a process of its own, the start of Spark included.

    Returns:
        Seconds, and the most memory (resident, MB) of the process in which the tables were computed or started.
    """
    os.sync()  # the run was written just now, which is no part of its analysis
    program = "import sys, pathlib, metrics.tables; metrics.tables.build(pathlib.Path(sys.argv[1]), sys.argv[2]); "
    program += "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    start = time.perf_counter()
    argv = [sys.executable, "-c", program, str(run), master]
    done = subprocess.run(argv, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    shutil.rmtree(run / "tables")
    return seconds, int(done.stdout.split()[-1]) / 1e3


if __name__ == "__main__":
    raise SystemExit(main())
