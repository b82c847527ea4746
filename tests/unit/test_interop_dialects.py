"""Lines that programs of gossipsub-interop printed in runs of Trellis: what is made of each, and its keys."""

from typing import NamedTuple

import pytest

from harness.deployment.identities import find_peer_id
from peer.interop.output import Identity, Receipt, read_line


class Recorded(NamedTuple):
    """What a program printed.

    Attributes:
        node: which node it was.
        introduced: its line PeerID, and when that was printed (ns of its day).
        first: its line of a first copy, and the node that sent that copy.
        later: its line of a later copy, and the node that sent that copy; None = the line does not say.
        others: lines that are no events.
    """

    node: int
    introduced: tuple[str, int]
    first: tuple[str, int]
    later: tuple[str, int | None]
    others: tuple[str, ...] = ()


TOPIC = "a-subnet"
RECORDED = {
    "go": Recorded(
        0,
        (
            '{"time":"2026-11-29T22:16:19.150398477Z","level":"INFO","msg":"PeerID",'
            '"id":"12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN","node_id":0}',
            80_179_150_398_477,
        ),
        (
            '{"time":"2026-11-29T22:18:19.356462063Z","level":"INFO","msg":"Received Message","service":"gossipsub",'
            '"from":"12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo","topic":"a-subnet","id":"0"}',
            3,
        ),
        (
            '{"time":"2026-11-29T22:18:19.466612211Z","level":"INFO","msg":"Received Message","service":"gossipsub",'
            '"from":"12D3KooWHbEputWi1fJAxoYgmvvDe3yP7acTACqmXKGYwMgN2daQ","topic":"a-subnet","id":"0"}',
            11,
        ),
        (
            '{"time":"2026-11-29T22:18:19.362410156Z","level":"INFO","msg":"Sent Message","service":"gossipsub",'
            '"to":"12D3KooWFHNBwTxUgeHRcD3g4ieiXBmZGVyp6TKGWRKKEqYgCC1C","topic":"a-subnet","id":"0"}',
            '{"time":"2026-11-29T22:18:19.340200315Z","level":"INFO","msg":"Received Ihave","service":"gossipsub",'
            '"from":"12D3KooWFNisMCMFB4sxKjQ4VLoTrMYh7fUJqXr1FMwhqAwfdxPS","ids":"[0]"}',
            '{"time":"2026-11-29T22:16:40.606451366Z","level":"INFO","msg":"Received Graft","service":"gossipsub",'
            '"from":"12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo","topic":"a-subnet"}',
        ),
    ),
    "rust": Recorded(
        2,
        (
            '{"msg":"PeerID","level":"INFO","time":"2026-11-29T22:16:19.116300447Z","node_id":"2",'
            '"id":"12D3KooWH3uVF6wv47WnArKHk5p6cvgCJEb74UTmxztmQDc298L3"}',
            80_179_116_300_447,
        ),
        (
            '{"msg":"Received Message","level":"INFO","time":"2026-11-29T22:18:19.793419151Z",'
            '"from":"12D3KooWFNisMCMFB4sxKjQ4VLoTrMYh7fUJqXr1FMwhqAwfdxPS","id":"0","topic":"a-subnet"}',
            13,
        ),
        ('{"msg":"Received Message","level":"INFO","time":"2026-11-29T22:18:20.352035282Z","id":"0"}', None),
        (
            '{"msg":"Validation Result","level":"INFO","time":"2026-11-29T22:18:20.13080772Z","result":'
            '"ValidationResult { peer_id: PeerId(\\"12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN\\"), '
            'msg_id: MessageId(0000000000000000), result: Accept }"}',
        ),
    ),
    "js": Recorded(
        0,
        (
            '{"time":"2026-11-29T22:46:57.482Z","level":"INFO","msg":"PeerID",'
            '"id":"12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN","node_id":0}',
            82_017_482_000_000,
        ),
        (
            '{"time":"2026-11-29T22:47:21.300Z","level":"INFO","msg":"Received Message",'
            '"from":"12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X","topic":"a-subnet","id":"0"}',
            1,
        ),
        (
            '{"time":"2026-11-29T22:47:21.384Z","level":"INFO","msg":"Received Message",'
            '"from":"12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo","topic":"a-subnet","id":"0"}',
            3,
        ),
    ),
    "py": Recorded(
        3,
        (
            '{"time": "2026-11-29T22:46:58.672278+00:00", "level": "INFO", "msg": "PeerID", '
            '"id": "12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo", "node_id": 3}',
            82_018_672_278_000,
        ),
        (
            '{"time": "2026-11-29T22:47:21.276310+00:00", "level": "INFO", "msg": "Received Message", '
            '"from": "12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X", "topic": "a-subnet", "id": "0"}',
            1,
        ),
        (
            '{"time": "2026-11-29T22:47:21.512259+00:00", "level": "INFO", "msg": "Received Message", '
            '"from": "12D3KooWSHj3RRbBjD15g6wekV8y3mm57Pobmps2g2WJm6F67Lay", "topic": "a-subnet", "id": "0"}',
            5,
        ),
    ),
}
DAY_NS = 86_400 * 10**9


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_program_printed_is_read(name: str) -> None:
    said = RECORDED[name]
    line, at_ns = said.introduced
    identity = read_line(line.encode())
    assert isinstance(identity, Identity)
    assert (identity.node, identity.peer_id) == (said.node, find_peer_id(said.node))
    assert identity.time.epoch_ns % DAY_NS == at_ns
    for (line, sender), topic in ((said.first, TOPIC), (said.later, None if said.later[1] is None else TOPIC)):
        copy = read_line(line.encode())
        assert isinstance(copy, Receipt)
        assert (copy.message, copy.topic) == (0, topic)
        assert copy.sender == (None if sender is None else find_peer_id(sender))
    assert [read_line(line.encode()) for line in said.others] == [None] * len(said.others)
