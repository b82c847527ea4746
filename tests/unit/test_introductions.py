"""When programs of gossipsub-interop introduced themselves, counted from the start of the warm-up."""

from pathlib import Path

import pytest

from harness.stages.introductions import measure_introductions

EPOCH_NS = 1_750_000_000_000_000_000
OFFSET_NS = EPOCH_NS - 5_000_000_000


def write(folder: Path, node: int, *lines: str) -> None:
    (folder / "output").mkdir(exist_ok=True)
    (folder / f"output/{node}.ndjson").write_text("".join(f"{line}\n" for line in lines))


def introduction(second: str) -> str:
    """EPOCH_NS is 2025-06-15T15:06:40Z."""
    return f'{{"time":"2025-06-15T15:06:{second}Z","msg":"PeerID","id":"12D3","node_id":0}}'


def test_the_first_and_the_last_one_count(tmp_path: Path) -> None:
    write(tmp_path, 0, "a log", introduction("40.25"), introduction("59"))
    write(tmp_path, 1, introduction("41.000000003"))
    write(tmp_path, 2, '{"msg":"Received Message"}', introduction("45"))
    write(tmp_path, 3, '{"time":"1999-01-01T00:00:00Z","msg":"PeerID","id":"12D3","node_id":3}')
    found = measure_introductions(tmp_path, range(5), 5_000_000_000, OFFSET_NS)
    assert found == {"introduced_ns_min": 250_000_000, "introduced_ns_max": 1_000_000_003}


@pytest.mark.parametrize(
    ("time", "last_ns"),
    [("40.123", 123_999_999), ("40.1230", 123_099_999), ("40", 999_999_999), ("40.123000001", 123_000_001)],
)
def test_the_last_one_was_not_later_than_its_digits_allow(time: str, last_ns: int, tmp_path: Path) -> None:
    write(tmp_path, 0, introduction("40.100000000"))
    write(tmp_path, 1, introduction(time))
    found = measure_introductions(tmp_path, range(2), 5_000_000_000, OFFSET_NS)
    assert found["introduced_ns_max"] == last_ns


@pytest.mark.parametrize("lines", [(), ("no JSON",), ('{"msg":"PeerID","id":"12D3","node_id":0}',)])
def test_without_an_introduction_there_is_no_counter(lines: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, 0, *lines)
    assert measure_introductions(tmp_path, range(2), 0, 0) == {}
