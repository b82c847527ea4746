"""``trellis serve RUN``: open the run's Prometheus database and its report on loopback, until Ctrl-C."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

from harness.errors import ExperimentError
from harness.stages.prometheus import free_port, reopen_prometheus
from harness.stages.serving import Gate, PrometheusServer, RunServer
from harness.terminal import say
from metrics.prometheus import GRAPHS, graph_url
from metrics.rundir import RunDir, require_run_dir
from metrics.rundir.files import MANIFEST_FILE, PROMETHEUS_FOLDER, REPORT_PAGE
from metrics.storage import local_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=local_path, metavar="RUN", help="directory of a run")
    parser.add_argument("--port", type=_port, default=0, help="port of the report (default: a free port)")
    parser.add_argument("--prometheus-port", type=_port, default=0, help="port of Prometheus (default: a free port)")


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Serve the run's report, its Prometheus data, or both, as far as the run has them.

    Whoever has the token that the addresses end with can read them, and nobody else.
    """
    run_dir: Path = arguments.run
    require_run_dir(run_dir)
    gate = Gate()
    with contextlib.ExitStack() as stack:
        lines = list(_show_metrics(stack, run_dir, arguments.prometheus_port, gate))
        if not (run_dir / REPORT_PAGE).is_file():
            lines.append(f"            (no report yet: trellis report {run_dir})")
        with _naming("--port", arguments.port):
            server = RunServer(run_dir, arguments.port, gate)
        stack.callback(server.server_close)
        say(
            f"report      {server.report}",
            *lines,
            "Only someone with the token in these addresses can read the run.",
            "Ctrl-C stops it.",
        )
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


@contextlib.contextmanager
def _naming(option: str, port: int) -> Iterator[None]:
    """Name the option of a port on which no server can listen."""
    try:
        yield
    except OSError as error:
        raise ExperimentError(f"{option} {port}", error.strerror or str(error)) from None


def _show_metrics(stack: contextlib.ExitStack, run_dir: Path, port: int, gate: Gate) -> Iterator[str]:
    """Start Prometheus on the run's data, and yield lines with its addresses."""
    if not (run_dir / PROMETHEUS_FOLDER).is_dir():
        yield "prometheus  the run recorded no metrics"
        return
    prometheus = reopen_prometheus(run_dir, free_port())
    stack.callback(prometheus.stop)
    with _naming("--prometheus-port", port):
        server = PrometheusServer(prometheus, port, gate)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"prometheus  {gate.sign(server.url)}"
    if (run_dir / MANIFEST_FILE).is_file():
        finished = RunDir(run_dir)
        times, interval_s = _measured(finished), float(finished.experiment["prometheus"]["scrape_interval_s"])
        for title, expressions in GRAPHS.items():
            url = graph_url(server.url, expressions, times[1], times[1] - times[0], interval_s)
            yield f"  {title}: {gate.sign(url)}"


def _measured(run: RunDir) -> tuple[float, float]:
    """Return the first and last instant of the run's phases in s since the epoch."""
    manifest, dilation = run.manifest, run.manifest.time_dilation
    first_ns = min((phase.start_ns for phase in manifest.phases), default=manifest.zero_ns)
    offset_ns, last_ns = manifest.epoch_offset_ns, run.timeline.end_ns
    return (first_ns * dilation + offset_ns) / 1e9, (last_ns * dilation + offset_ns) / 1e9
