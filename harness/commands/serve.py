"""``trellis serve RUN``: open the run's Prometheus database and its report on loopback, until Ctrl-C."""

import argparse
import contextlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from harness.errors import ExperimentError
from harness.stages.prometheus import LOOPBACK, free_port, reopen_prometheus
from metrics.prometheus import GRAPHS, graph_url
from metrics.rundir import RunDir, require_run_dir
from metrics.rundir.files import MANIFEST_FILE, PROMETHEUS_FOLDER, REPORT_FOLDER, REPORT_PAGE
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
    """Serve the run's report, its Prometheus data, or both, as far as the run has them."""
    run_dir: Path = arguments.run
    require_run_dir(run_dir)
    with contextlib.ExitStack() as stack:
        lines = list(_show_metrics(stack, run_dir, arguments.prometheus_port))
        if not (run_dir / REPORT_PAGE).is_file():
            lines.append(f"            (no report yet: trellis report {run_dir})")
        try:
            server = _RunServer(run_dir, arguments.port)
        except OSError as error:
            raise ExperimentError(f"--port {arguments.port}", error.strerror or str(error)) from None
        stack.callback(server.server_close)
        print(f"report      {server.url}", *lines, "Ctrl-C stops it.", sep="\n", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


class _RunServer(ThreadingHTTPServer):
    """An HTTP server of a run directory, on loopback only. ``url`` is the report's, which links to the tables."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__((LOOPBACK, port), partial(_QuietHandler, directory=str(folder)))
        self.url = f"http://{LOOPBACK}:{self.server_port}/{REPORT_FOLDER}/"


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing, so that the addresses stay visible."""


def _show_metrics(stack: contextlib.ExitStack, run_dir: Path, port: int) -> Iterator[str]:
    """Start Prometheus on the run's data, and yield lines with its addresses."""
    if not (run_dir / PROMETHEUS_FOLDER).is_dir():
        yield "prometheus  the run recorded no metrics"
        return
    server = reopen_prometheus(run_dir, port or free_port())
    stack.callback(server.stop)
    yield f"prometheus  {server.url}"
    if (run_dir / MANIFEST_FILE).is_file():
        finished = RunDir(run_dir)
        times, interval_s = _measured(finished), float(finished.experiment["prometheus"]["scrape_interval_s"])
        for title, expressions in GRAPHS.items():
            yield f"  {title}: {graph_url(server.url, expressions, times[1], times[1] - times[0], interval_s)}"


def _measured(run: RunDir) -> tuple[float, float]:
    """Return the first and last instant of the run's phases in s since the epoch."""
    manifest, dilation = run.manifest, run.manifest.time_dilation
    first_ns = min((phase.start_ns for phase in manifest.phases), default=manifest.zero_ns)
    offset_ns, last_ns = manifest.epoch_offset_ns, run.timeline.end_ns
    return (first_ns * dilation + offset_ns) / 1e9, (last_ns * dilation + offset_ns) / 1e9
