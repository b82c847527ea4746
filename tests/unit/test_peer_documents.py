"""The pages about peers say what the code says."""

import re
from pathlib import Path

import pytest

from peer import wire
from peer.core import frames, links
from peer.core.contract import SetTimer, Started
from peer.core.dissemination.flood import FloodParameters
from peer.protocols.registry import DISSEMINATIONS, INTERESTS, MEMBERSHIPS, PROTOCOLS, compose
from peer.runtime import tcp_connection
from peer.testing import Solo
from peer.trace import EVENTS, VERSION, TraceEvent

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, columns: int) -> list[list[str]]:
    lines = (DOCS / page).read_text().splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row] for row in cells if len(row) == columns]


def test_every_trace_event_is_described_in_the_codes_own_words():
    assert dict(rows("trace-events.md", 2)[2:]) == EVENTS
    assert f"version {VERSION}" in (DOCS / "trace-events.md").read_text()


def test_the_events_name_only_fields_that_a_line_has():
    fields = set(TraceEvent.__struct_fields__)
    for text in EVENTS.values():
        assert set(re.findall(r"[a-z]+_[a-z]+", text)) <= fields


def test_the_header_is_laid_out_as_the_page_says():
    fixed = [row[:2] for row in rows("wire-format.md", 4) if row[0].isdigit() and row[1].isdigit()]
    formats = {1: "B", 2: "H", 4: "I", 8: "Q"}
    assert wire.HEADER.format == ">" + "".join(formats[int(size)] for _, size in fixed)
    assert [int(offset) for offset, _ in fixed] == [sum(int(size) for _, size in fixed[:place]) for place in range(9)]
    text = (DOCS / "wire-format.md").read_text()
    assert f"0x{wire.MAGIC:x}" in text
    assert str(wire.MAX_FRAME_BYTES) in text


def test_every_kind_is_in_the_page_or_in_that_of_its_protocol():
    pages = ["wire-format.md", *sorted(f"protocols/{path.name}" for path in (DOCS / "protocols").glob("*.md"))]
    found = [row for page in pages for row in rows(page, 4) if row[0].isdigit() and row[1].isalpha()]
    assert {int(row[0]): row[1] for row in found} == frames.kind_names()
    assert len(found) == len(frames.kind_names()), "none is in two places"
    for kind, name, fields, _ in found:
        body = ", ".join(frames.frame_type(int(kind)).__struct_fields__)
        assert fields == ("payload, routing" if name == "data" else body)


def test_the_parts_and_limits_are_in_the_page():
    text = (DOCS / "protocol-contract.md").read_text()
    for name in (*MEMBERSHIPS, *INTERESTS, *(DISSEMINATIONS.keys() - PROTOCOLS.keys())):
        assert f"`{name}`" in text
    assert str(FloodParameters().seen_messages) in text
    assert len(links.PAUSES_S) == 6
    assert "up to six attempts" in text
    assert f"at most {tcp_connection.CLOSE_TIMEOUT_S:.0f} s" in text


def test_reasons_for_passing_refusals_are_in_the_page():
    assert links.ALREADY_LINKED in (DOCS / "trace-events.md").read_text()
    assert links.SIMULTANEOUS in (DOCS / "wire-format.md").read_text()
    for page in ("wire-format.md", "trace-events.md"):
        assert links.UNWANTED in (DOCS / page).read_text()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_is_in_the_readme(name: str):
    rows_of_table = [line for line in (DOCS.parent / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{name}`" in row.split("|")[1] for row in rows_of_table)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocols_default_composition_can_be_made(name: str):
    effects = Solo(compose(3, 1, (1, 2), PROTOCOLS[name].composition)).give(Started())
    assert all(isinstance(effect, SetTimer) for effect in effects), "nobody to talk to without a bootstrap list"
