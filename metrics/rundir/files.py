"""The names of a run directory's files. docs/results.md says what each file holds.

``peer.files`` has the names that an agent's work folder shares: overlay, schedule, traces, logs and recordings.
"""

from peer.files import LOGS_FOLDER

EXPERIMENT_FILE = "experiment.toml"
PLAN_FILE = "plan.json"
UNDERLAY_FILE = "underlay.json"
INVENTORY_FILE = "inventory.json"
ATTEMPT_FILE = "attempt.json"

MANIFEST_FILE = "manifest.json"
DEPLOYMENT_FILE = "deployment.json"
CLOCKS_FILE = "clocks.json"
ACHIEVED_FILE = "achieved.parquet"
FIRST_PACKETS_FILE = "first_packets.parquet"
DATAPLANE_FILE = "dataplane.jsonl"
PRESSURE_FILE = "pressure.jsonl"
STALLS_FILE = "stalls.jsonl"
CAPTURE_FOLDER = "capture"
PROMETHEUS_FOLDER = "prometheus"
PROMETHEUS_LOG = f"{LOGS_FOLDER}/prometheus.log"

WORK_FOLDER = ".work"
RESERVE_FILE = ".reserve"

TABLES_FOLDER = "tables"
SUMMARY_FILE = "summary.json"
REPORT_FOLDER = "report"
REPORT_PAGE = f"{REPORT_FOLDER}/index.html"
ANALYSIS_LOG = "analysis.log"


def table_file(name: str) -> str:
    """Return the name of a table, which is a folder of Parquet files, in the folder of tables."""
    return f"{name}.parquet"


def exits_file(machine: str) -> str:
    """Return where a machine's agent tells how its peers ended; ``*`` matches every machine's."""
    return f"exits-{machine}.jsonl"


def agent_log(machine: str) -> str:
    """Return the name of the file in ``peer.files.LOGS_FOLDER`` that has the output of a machine's agent."""
    return f"agent-{machine}.log"
