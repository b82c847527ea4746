"""Makes the report's table of the slowest deliveries: how long each took, by which nodes, and where it is replayed."""

from collections.abc import Sequence

from msgspec import Struct

from metrics.report.run import Run
from metrics.report.spread import Spread
from metrics.rundir.files import REPLAY_PAGE
from metrics.totals import SlowDelivery


class SlowRow(Struct, frozen=True):
    """A slow delivery for people.

    Attributes:
        message_id: the message.
        publisher: the node that published it, by name.
        subscriber: the node to which it was delivered, by name.
        latency_ms: how long that took.
        direct_delay_ms: the one-way delay of the direct path; None = unknown.
        path: the nodes that the first copy crossed, with both ends, by name; empty if they are not known.
        replay: the address of its replay, from the report's page; None = there is none.
    """

    message_id: int
    publisher: str
    subscriber: str
    latency_ms: float
    direct_delay_ms: float | None
    path: tuple[str, ...]
    replay: str | None


def list_slow(run: Run, spreads: Sequence[Spread]) -> list[SlowRow]:
    """Return the rows of the slowest deliveries, slowest first.

    Args:
        run: the analysed run.
        spreads: the messages of the run's replay.
    """
    known = {spread.message_id: spread for spread in spreads}
    return [_row(run, delivery, known.get(delivery.message_id)) for delivery in run.standouts.slowest]


def _row(run: Run, delivery: SlowDelivery, spread: Spread | None) -> SlowRow:
    path = None if spread is None else spread.path_to(delivery.node)
    page = (run.results / REPLAY_PAGE).name
    return SlowRow(
        delivery.message_id,
        run.name_node(delivery.publisher),
        run.name_node(delivery.node),
        delivery.latency_ms,
        delivery.direct_delay_ms,
        tuple(run.name_node(node) for node in path or ()),
        None if spread is None else f"{page}#m={delivery.message_id}&n={delivery.node}",
    )
