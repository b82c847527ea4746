"""docs/tables.md against the schema, and the trace schema against its type."""

import re
from pathlib import Path

from msgspec.structs import fields

from metrics.tables.schemas import OPTIONAL, TABLES
from peer.trace import TraceEvent

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"


def documented() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]:
        name = section.split("\n", 1)[0].strip()
        found[name] = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    return found


def test_tables_document_lists_every_column_in_order() -> None:
    assert {name: columns for name, columns in documented().items() if "packets" not in name} == {
        name: list(columns) for name, columns in (TABLES | OPTIONAL).items()
    }


def test_tables_stage_every_field_of_a_trace_event() -> None:
    from metrics.tables.traces import EVENTS

    unused = {"ttl", "version"}
    assert sorted(EVENTS.names) == sorted({field.name for field in fields(TraceEvent)} - unused)
