"""The Prometheus server as a process: it scrapes during a run, and later shows the data of a finished run."""

import base64
import json
import os
import secrets
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import bcrypt
from msgspec import Struct

from harness.doctor.programs import find_program
from harness.errors import TestbedError, describe_status
from harness.machine.scheduling import make_session_nice
from metrics.prometheus import TSDB_FOLDER, Target, write_config
from metrics.rundir import open_log
from metrics.rundir.files import PROMETHEUS_FOLDER, PROMETHEUS_LOG
from peer.core.identifiers import NodeId
from peer.core.schedule import Action, Crash, Vanish
from topologies.timeline import Change

LOOPBACK = "127.0.0.1"
START_S = 30.0
STOP_S = 30.0
QUERY_S = 60.0
PORTS = 5
"""How many free ports are tried: another program may take a port before the server starts."""

RETENTION = "100y"
"""Prometheus's default is to delete data that is older than 15 days."""

_USER = "trellis"
_BCRYPT_ROUNDS = 4
"""The fewest: nobody can guess 32 random bytes, and the server checks them at each request."""

_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_NO_CONFIG = Path("/dev/null")

# In a private mount namespace an in-memory file system with a copy of the data hides the data folder: the server can
# read and write, the run directory does not change, and the copy vanishes with the server.
_WITH_COPY = 'cd "$1" && mount -t tmpfs tmpfs "$1" && cp -a ./. "$1" && cd / && shift && exec "$@"'


FIRST_SCRAPE_S = 10.0
"""How long a new server may take to know its targets: its discovery and its scraping each check every 5 s."""

MOST_MISSED = 1
"""How many scrapes a target may lack: where in an interval they are made is the server's choice."""


class ScrapeCounts(Struct, frozen=True):
    """Counts of scrapes by ``job/instance``: all scrapes, and the scrapes that failed."""

    by_target: dict[str, int]
    failed_by_target: dict[str, int]

    @property
    def scrapes(self) -> int:
        return sum(self.by_target.values())

    @property
    def failed(self) -> int:
        return sum(self.failed_by_target.values())


class ScrapeWindow(Struct, frozen=True):
    """A span in which targets should have been scraped: its length, and how long before it the server started (s)."""

    length_s: float
    started_before_s: float
    interval_s: float

    @property
    def fewest(self) -> int:
        """How many scrapes each target has at least, unless the server stood still."""
        idle_s = max(0.0, FIRST_SCRAPE_S - self.started_before_s)
        return max(0, int((self.length_s - idle_s) / self.interval_s) - MOST_MISSED)


def name_target(target: Target) -> str:
    """Return the name of a target in counts."""
    return f"{target.job}/{target.address}:{target.port}"


def judge_scrapes(
    counts: ScrapeCounts, window: ScrapeWindow, targets: Iterable[Target], unexplained: Counter[str]
) -> list[str]:
    """Say which scrapes failed, and which targets had none although some were due.

    Args:
        counts: what the server counted.
        window: in which it did.
        targets: all that it should scrape.
        unexplained: the failures that no crash explains.
    """
    found = []
    if unexplained:
        [(worst, _)] = unexplained.most_common(1)
        found.append(f"{unexplained.total()} of {counts.scrapes} scrapes failed during the workload, most at {worst}")
    made = {name: counts.by_target.get(name, 0) for name in map(name_target, targets)}
    never = [name for name, count in made.items() if not count]
    if never and window.fewest:
        due = f"although at least {window.fewest} scrapes of each were due in {window.length_s:.3g} s"
        found.append(f"{len(never)} of {len(made)} targets were never scraped during the workload, {due}: {never[0]}")
    return found


def unexplained_failures(
    counts: ScrapeCounts,
    schedule: Iterable[Action],
    places: Mapping[NodeId, tuple[str, int]],
    paused: Mapping[NodeId, int],
) -> Counter[str]:
    """Return the failed scrapes by target without those of paused peers, and one per scheduled crash of a peer.

    After a crash the peer's next process may be starting.

    Args:
        counts: what the server counted.
        schedule: the run's.
        places: node -> address and port of its metrics.
        paused: node -> how many scrapes its pauses may make fail (``count_paused``).
    """
    crashes = Counter(action.node for action in schedule if isinstance(action, Crash | Vanish))
    expected = crashes + Counter(paused)
    explained = {f"peer/{host}:{port}": expected[node] for node, (host, port) in places.items()}
    return Counter(counts.failed_by_target) - Counter(explained)


def count_paused(changes: Iterable[Change], nodes: Mapping[int, NodeId], interval_s: float) -> Counter[NodeId]:
    """Return how many scrapes of each node are due while its peer is paused, at most.

    Args:
        changes: of the run.
        nodes: host -> its node.
        interval_s: the virtual time between two scrapes.
    """
    counts: Counter[NodeId] = Counter()
    for change in changes:
        for host in change.paused:
            assert change.to_ns is not None, "pauses end at the stop of the run"
            counts[nodes[host]] += int((change.to_ns - change.from_ns) / 1e9 / interval_s) + 1
    return counts


class Client:
    """Asks a server.

    Args:
        url: of the server.
        authorization: the header that it asks for, if any.
        timeout_s: how long an answer may take.
    """

    def __init__(self, url: str, authorization: Mapping[str, str] | None = None, timeout_s: float = QUERY_S) -> None:
        self.url = url
        self.authorization = authorization or {}
        self._timeout_s = timeout_s

    def query(self, expression: str, at_epoch_s: float) -> list[dict[str, Any]]:
        """Return the result of a PromQL expression at an instant (s since the epoch): a vector, or a range's matrix.

        Raises:
            TestbedError: the server refused the expression or does not answer.
        """
        return list(self._ask("query", {"query": expression, "time": f"{at_epoch_s:.3f}"})["data"]["result"])

    def _ask(self, endpoint: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Return what the server answers, at an endpoint of its API."""
        asked = " ".join((endpoint, *arguments.values()))
        try:
            url = f"{self.url}/api/v1/{endpoint}?{urllib.parse.urlencode(arguments)}"
            return json.loads(_get(url, self.authorization, self._timeout_s))  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            raise TestbedError(f"ask Prometheus: {asked}", error.read().decode(errors="replace")) from None
        except OSError as error:
            raise TestbedError(f"ask Prometheus: {asked}", str(error)) from None

    def list_metrics(self) -> list[str]:
        """Return the names of all metrics that the server has samples of.

        Raises:
            TestbedError: the server does not answer.
        """
        return list(self._ask("label/__name__/values", {})["data"])

    def count_scrapes(self, start_epoch_s: float, end_epoch_s: float) -> ScrapeCounts:
        """Count the scrapes in an interval in which all targets should have answered."""
        window = f"[{round((end_epoch_s - start_epoch_s) * 1000)}ms]"
        made = self.query(f"count_over_time(up{window})", end_epoch_s)
        failed = self.query(f"count_over_time(up{window}) - sum_over_time(up{window}) > 0", end_epoch_s)
        return ScrapeCounts(_by_target(made), _by_target(failed))


class Prometheus(Client):
    """A running server on loopback, and its process; ``password``: None = it asks for none."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, password: str | None) -> None:
        super().__init__(f"http://{LOOPBACK}:{port}", {} if password is None else _authorization(password))
        self.port = port
        self.pid = process.pid
        self._process = process

    def lost(self) -> dict[str, str]:
        """Return the server and how it ended, if it ended."""
        status = self._process.poll()
        return {} if status is None else {"Prometheus": describe_status(status)}

    def stop(self) -> None:
        """End the server and wait until its database is closed.

        Raises:
            TestbedError: it did not end cleanly; the last data may be lost.
        """
        self._process.terminate()
        try:
            status = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if status != 0:
            raise TestbedError("stop Prometheus", f"it {describe_status(status)}")


def start_prometheus(run_dir: Path, targets: Sequence[Target], scrape_interval_s: float) -> Prometheus:
    """Start a server at a free port that scrapes ``targets`` into ``run_dir/prometheus`` until it is stopped.

    Its log is ``logs/prometheus.log``. It runs on one processor, only when no other process wants that processor, since
    it shares the machine with what is measured. It ends when the calling thread ends.

    Raises:
        TestbedError: it is not installed or did not start; the message has the last line of its log.
    """
    folder = run_dir / PROMETHEUS_FOLDER
    config = write_config(folder, targets, scrape_interval_s)
    log_path = run_dir / PROMETHEUS_LOG
    log_path.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, PORTS + 1):
        port = free_port()
        command = [*_DIE_WITH_US, "chrt", "--idle", "0", *_command(config, folder / TSDB_FOLDER, port)]
        with open_log(log_path) as log:
            log.truncate(0)
            try:
                server = _launch(command, log, port, folder / TSDB_FOLDER)
            except TestbedError as error:
                if attempt == PORTS or "address already in use" not in str(error).lower():
                    raise
                continue  # another program took the port meanwhile
        make_session_nice(server.pid)
        return server
    raise AssertionError("the last attempt returns or raises")


def free_port() -> int:
    """Return a port that is free on loopback now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def reopen_prometheus(run_dir: Path, port: int) -> Prometheus:
    """Start a server that shows a finished run's data. It scrapes nothing and does not change the run directory.

    It answers only whoever has its password, which is new each time. It ends when the calling thread ends.

    Raises:
        TestbedError: the run has no data, or the server did not start.
    """
    data = (run_dir / PROMETHEUS_FOLDER / TSDB_FOLDER).absolute()
    if not data.is_dir():
        raise TestbedError(f"open {data}", "the run recorded no Prometheus data")
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    private = ["unshare", *user, "--mount", "--propagation", "private"]
    command = [*private, *_DIE_WITH_US, "sh", "-ec", _WITH_COPY, "sh", str(data), *_command(_NO_CONFIG, data, port)]
    password = secrets.token_urlsafe(32)
    with tempfile.TemporaryFile() as log, _web_config(password) as config:
        command.append(f"--web.config.file=/proc/self/fd/{config.fileno()}")  # which it reads at each request
        return _launch(command, log, port, data, password, [config.fileno()])


@contextmanager
def _web_config(password: str) -> Iterator[IO[bytes]]:
    """Yield a file in memory, without a name, that lets the server answer only callers that have a password."""
    user = {_USER: bcrypt.hashpw(password.encode(), bcrypt.gensalt(_BCRYPT_ROUNDS)).decode()}
    with open(os.memfd_create("web.yml"), "w+b") as file:  # noqa: PTH123 - a descriptor
        file.write(json.dumps({"basic_auth_users": user}).encode())
        file.flush()
        yield file


def _authorization(password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{_USER}:{password}'.encode()).decode()}"}


def _command(config: Path, data: Path, port: int) -> list[str]:
    program = find_program("prometheus")
    if program is None:
        raise TestbedError("start Prometheus", "the program prometheus is not installed (trellis doctor --fix)")
    return [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--web.listen-address={LOOPBACK}:{port}",
        "--log.level=warn",
    ]


def _launch(
    command: Sequence[str],
    log: IO[bytes],
    port: int,
    data: Path,
    password: str | None = None,
    kept: Sequence[int] = (),
) -> Prometheus:
    """Start a server and wait until it is ready.

    Args:
        command: what starts it.
        log: where its output goes.
        port: where it listens.
        data: its database, by which it is told from other servers.
        password: what it asks for; None = nothing.
        kept: descriptors that it needs.
    """
    refuse_taken(port)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, "GOMAXPROCS": "1"},
        pass_fds=kept,
        start_new_session=True,  # Ctrl-C must not reach it: Trellis stops it in its own order
    )
    server = Prometheus(process, port, password)
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(f"{server.url}/-/ready", server.authorization):
            if not _serves(server, data):
                break
            return server
        time.sleep(0.05)
    taken = process.poll() is None and time.monotonic() < deadline
    process.kill()
    process.wait()
    words = "address already in use by another server" if taken else _last_words(log)
    raise TestbedError(f"start Prometheus on port {port}", words)


def refuse_taken(port: int) -> None:
    """Raise if the port is taken: its server would answer instead of the one to start."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise TestbedError(f"start Prometheus on port {port}", error.strerror or str(error)) from None


def _answers(url: str, headers: Mapping[str, str]) -> bool:
    try:
        _get(url, headers)
    except OSError:
        return False
    return True


def _serves(server: Prometheus, data: Path) -> bool:
    """Return whether the server is the one of this data: another server may have taken the port first."""
    flags = json.loads(_get(f"{server.url}/api/v1/status/flags", server.authorization))["data"]
    return Path(flags["storage.tsdb.path"]) == data


def _get(url: str, headers: Mapping[str, str], timeout_s: float = 5) -> bytes:
    # Without a proxy: the user's http_proxy must not apply to loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=dict(headers)), timeout=timeout_s) as answer:
        return bytes(answer.read())


def _by_target(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    return {f"{row['metric']['job']}/{row['metric']['instance']}": _value(row) for row in rows}


def _value(row: dict[str, Any]) -> int:
    return round(float(row["value"][1]))


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"not ready after {START_S:g} s"
