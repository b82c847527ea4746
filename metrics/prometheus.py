"""Prometheus as files: its configuration, its targets, and links to useful graphs.

docs/metrics.md lists what peers, agent and data plane expose.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from msgspec import Struct

from metrics.libp2p_names import recording_rules
from metrics.rundir import write_file

CONFIG_FILE = "prometheus.yml"
RULES_FILE = "rules.yml"
TSDB_FOLDER = "data"

GRAPHS = {
    "messages delivered and duplicates received, per second": (
        "sum(rate(trellis_deliveries_total[$window]))",
        "sum(rate(trellis_duplicates_total[$window]))",
    ),
    "bytes that the peers sent, by kind of frame, per second": (
        "sum by (kind) (rate(trellis_sent_bytes_total[$window]))",
    ),
    "physical links, both ends counted": ("sum(trellis_links)",),
    "bytes waiting to be sent, at the worst peer": ("max(trellis_send_queue_bytes)",),
    "scrapes that answered": ("avg by (job) (up)",),
}
"""The graphs that a reader needs first: a title, and the expressions of one page; ``$window`` spans a few scrapes."""

WINDOW_SCRAPES = 4


class Target(Struct, frozen=True):
    """An endpoint to scrape. ``labels`` are in addition to ``job`` and ``instance``."""

    job: str
    address: str
    port: int
    labels: dict[str, str] = {}


def write_config(folder: Path, targets: Sequence[Target], scrape_interval_s: float) -> Path:
    """Write ``prometheus.yml`` and the files ``targets-<job>.json`` for discovery; return the configuration's path.

    Beside them, ``rules.yml`` lets the server record series under the names of libp2p's draft (``libp2p_names``). All
    files are JSON, of which YAML is a superset.

    Args:
        folder: the folder of the files.
        targets: the endpoints to scrape.
        scrape_interval_s: the time between two scrapes, in seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_job: dict[str, list[Target]] = defaultdict(list)
    for target in targets:
        by_job[target.job].append(target)
    for job, members in by_job.items():
        groups = [{"targets": [f"{member.address}:{member.port}"], "labels": member.labels} for member in members]
        write_file(folder / f"targets-{job}.json", json.dumps(groups, indent=1).encode())
    interval = f"{round(scrape_interval_s * 1000)}ms"
    config = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [RULES_FILE],
        "scrape_configs": [
            {"job_name": job, "file_sd_configs": [{"files": [f"targets-{job}.json"]}]} for job in sorted(by_job)
        ],
    }
    write_file(folder / RULES_FILE, json.dumps({"groups": [recording_rules()]}, indent=1).encode())
    path = folder / CONFIG_FILE
    write_file(path, json.dumps(config, indent=1).encode() + b"\n")
    return path


def graph_url(
    base: str, expressions: Sequence[str], end_epoch_s: float, range_s: float, scrape_interval_s: float
) -> str:
    """Return a page of the server at ``base`` that plots expressions over the ``range_s`` before ``end_epoch_s``.

    Args:
        base: the address of the server.
        expressions: one expression per panel.
        end_epoch_s: the end of the graphs, in seconds since the epoch.
        range_s: the length of the graphs, in seconds.
        scrape_interval_s: the time between two scrapes, in seconds.
    """
    window = f"{round(WINDOW_SCRAPES * scrape_interval_s)}s"
    end = datetime.fromtimestamp(end_epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
    query: dict[str, str] = {}
    for panel, expression in enumerate(expressions):
        query |= {f"g{panel}.expr": expression.replace("$window", window), f"g{panel}.tab": "0"}
        query |= {f"g{panel}.range_input": f"{max(1, round(range_s))}s", f"g{panel}.end_input": end}
    return f"{base}/graph?{urlencode(query)}"
