"""The bytes of a copy that are payload: never what its protocol adds, and no more than the copy has."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metrics.tables.condensed import add_payload_bytes
from peer.core.frames import Data, Subscriptions
from peer.wire import size

KNOWN, UNKNOWN = 7, 8


@given(
    st.sampled_from([0, 1, 199, 255, 256, 65535, 65536]),
    st.sampled_from([0, 1, 40, 255, 300, 70000]),
    st.integers(1, 3),
)
def test_what_a_protocol_adds_to_copies_is_no_payload(payload: int, routing: int, topics: int) -> None:
    """A message that was published, one of which nothing is known, and a frame that is none."""
    named = tuple(range(topics))
    copies = [Data(message, named, 1, 0, bytes(payload), bytes(routing)) for message in (KNOWN, UNKNOWN)]
    frames = [*copies, Subscriptions(named)]
    left = pa.table(
        {
            "message_id": pa.array([KNOWN, UNKNOWN, None], pa.int64()),
            "topics": pa.array([named, named, None], pa.list_(pa.int64())),
            "len_bytes": [size(frame) for frame in frames],
            "kind": [frame.kind for frame in frames],
        }
    )
    contents = pa.table({"message_id": [KNOWN], "payload_bytes": [payload]})
    known, unknown, other = add_payload_bytes(left, contents)["payload"].to_pylist()
    assert known == payload
    assert unknown == payload if not routing else payload <= unknown < size(copies[1])
    assert other == 0


def test_a_copy_has_no_more_payload_than_bytes() -> None:
    """A forged copy of a message that was published with a longer payload."""
    copy = Data(KNOWN, (1,), 1, 0, b"short")
    left = pa.table({"message_id": [KNOWN], "topics": [[1]], "len_bytes": [size(copy)], "kind": [copy.kind]})
    contents = pa.table({"message_id": [KNOWN], "payload_bytes": [100]})
    assert add_payload_bytes(left, contents)["payload"].to_pylist() == [len(b"short")]
