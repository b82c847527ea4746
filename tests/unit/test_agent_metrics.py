"""What an agent serves to Prometheus, and what it must not do for it."""

import os

import pytest

from peer.runtime import agent_metrics
from peer.runtime.exposition import expose


def test_a_scrape_counts_the_peers_and_walks_nobodys_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents are scraped while a run is judged, and a process waits while its pages are walked."""
    opened: list[str] = []
    monkeypatch.setattr(agent_metrics.Path, "read_text", _noting(opened, agent_metrics.Path.read_text))
    gone = 2**22 + 1
    text = expose(agent_metrics.collect_agent(lambda: {"ready": 2}, lambda: [os.getpid(), gone])).decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert lines['trellis_agent_peers{state="ready"}'] == "2.0"
    assert 1e6 < float(lines["trellis_agent_peers_rss_bytes"]) < 1e10
    assert [name.rpartition("/")[2] for name in opened] == ["statm", "statm"]


def _noting(opened: list[str], read_text):
    def read(path, *args, **options):
        opened.append(str(path))
        return read_text(path, *args, **options)

    return read
