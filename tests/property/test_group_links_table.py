"""The kernel of the table ``group_links`` against loops over dictionaries."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from metrics.tables.deliveries import PUBLISHED
from metrics.tables.group_links import build_group_links
from metrics.tables.schemas import GROUP_LINKS, arrow_schema
from peer.core.frames import Data

Row = dict[str, Any]

nodes = st.integers(0, 3)
copies = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([1, Data.kind, Data.kind]),
        "message_id": st.none() | st.integers(0, 4),
        "src_node": st.none() | nodes,
        "dst_node": nodes,
        "at_relay": st.none() | st.booleans(),
        "tap_rx_ns": st.none() | st.integers(0, 9),
    }
)


def count(hops: list[Row]) -> tuple[int, int]:
    return len(hops), len({hop["expression"] for hop in hops})


def expected(texts: list[str | None], hops: list[Row], bad: set[int], *, on_wire: bool) -> list[Row]:
    links: dict[tuple[int, int], list[Row]] = {}
    for hop in hops:
        number = hop["message_id"]
        text = texts[number] if number is not None and number < len(texts) else None
        handled = hop["kind"] == Data.kind and hop["at_relay"] is not None and hop["src_node"] is not None
        if text is not None and handled and hop["dst_node"] not in bad:
            ends = min(hop["src_node"], hop["dst_node"]), max(hop["src_node"], hop["dst_node"])
            links.setdefault(ends, []).append(hop | {"expression": text})
    rows = []
    for (node, peer), carried in sorted(links.items()):
        number, expressions = count(carried)
        seen = count([hop for hop in carried if hop["tap_rx_ns"] is not None]) if on_wire else (None, None)
        rows.append(
            {
                "node": node,
                "peer": peer,
                "copies": number,
                "expressions": expressions,
                "copies_on_wire": seen[0],
                "expressions_on_wire": seen[1],
            }
        )
    return rows


@given(
    st.lists(st.none() | st.sampled_from(["a", "a&b", "b"]), max_size=4),
    st.lists(copies, max_size=20),
    st.sets(nodes, max_size=2),
    st.booleans(),
)
def test_links_are_what_loops_say(texts: list[str | None], hops: list[Row], bad: set[int], on_wire: bool) -> None:
    published = [{"message_id": number, "expression": text} for number, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in ("published", "hops")}
        for path, rows, schema in zip(
            paths.values(), (published, hops), (PUBLISHED, arrow_schema("hops")), strict=True
        ):
            path.mkdir()
            pq.write_table(pa.Table.from_pylist(rows, schema), path / "part-0.parquet")
        found = build_group_links(paths["published"], paths["hops"], frozenset(bad), on_wire=on_wire)
    assert found.schema == arrow_schema(GROUP_LINKS)
    assert found.to_pylist() == expected(texts, hops, bad, on_wire=on_wire)
