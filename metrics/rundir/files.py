"""The names of a run directory's files. docs/results.md says what each file holds.

``peer.files`` has the names that an agent's work folder shares: overlay, schedule, traces, logs and recordings.
"""

from peer.files import LOGS_FOLDER

EXPERIMENT_FILE = "experiment.toml"
SHADOW_FILE = "shadow.yaml"
"""The experiment file, if it is one of Shadow."""
PLAN_FILE = "plan.json"
UNDERLAY_FILE = "underlay.json"
CHANGES_FILE = "changes.jsonl"
"""A file of runs with faults only."""
INVENTORY_FILE = "inventory.json"
ATTEMPT_FILE = "attempt.json"

MANIFEST_FILE = "manifest.json"
PHASES_FILE = "phases.jsonl"
"""Which phases have begun, for whoever watches the run. The running stage holds a lock on it as long as it lives."""
DEPLOYMENT_FILE = "deployment.json"
CLOCKS_FILE = "clocks.json"
ACHIEVED_FILE = "achieved.parquet"
ROUND_TRIPS_FILE = "round_trips.parquet"
FIRST_PACKETS_FILE = "first_packets.parquet"
DATAPLANE_FILE = "dataplane.jsonl"
PRESSURE_FILE = "pressure.jsonl"
STALLS_FILE = "stalls.jsonl"
FAULTS_FILE = "faults.jsonl"
"""When the instants of ``CHANGES_FILE`` were applied; emulated runs with faults have it."""
CAPTURE_FOLDER = "capture"
MACHINE_CAPTURE_FOLDER = "machine_capture"
HOST_CAPTURE_FILE = "host_capture/hosts.pcapng"
PROMETHEUS_FOLDER = "prometheus"
SAMPLES_FILE = f"{PROMETHEUS_FOLDER}/samples.parquet"
PROMETHEUS_LOG = f"{LOGS_FOLDER}/prometheus.log"

WORK_FOLDER = ".work"
RESERVE_FILE = ".reserve"

TABLES_FOLDER = "tables"
TOTALS_FILE = "totals.json"
VIEWS_FILE = "trellis.sql"
"""Files in the folder of tables."""
SUMMARY_FILE = "summary.json"
REPORT_FOLDER = "report"
REPORT_PAGE = f"{REPORT_FOLDER}/index.html"
REPLAY_PAGE = f"{REPORT_FOLDER}/replay.html"
ANALYSIS_LOG = "analysis.log"

ANALYSES_FOLDER = "analyses"
"""In a store: the folder of analyses, one folder per analysis with ``RESULTS``."""
POINTER_FILE = "analysis.json"
"""In a store: says which analysis is the run's (``metrics.rundir.documents.Pointer``)."""

RESULTS = (SUMMARY_FILE, REPORT_FOLDER, TABLES_FOLDER)
"""The results of an analysis. The first two are made from the tables, so they are removed first, and added last."""


def table_file(name: str) -> str:
    """Return the name of a table, which is a folder of Parquet files, in the folder of tables."""
    return f"{name}.parquet"


def exits_file(machine: str) -> str:
    """Return where a machine's agent reports how its peers ended; ``*`` matches the files of all machines."""
    return f"exits-{machine}.jsonl"


def agent_log(machine: str) -> str:
    """Return the name of the file in ``peer.files.LOGS_FOLDER`` that has the output of a machine's agent."""
    return f"agent-{machine}.log"
