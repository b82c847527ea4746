"""Imports the modules of the tasks, without those of the measures, so that no task of a worker has to."""

from metrics.recorded import host_captures  # noqa: F401
from metrics.tables import (  # noqa: F401
    accounts,
    condensed,
    counters,
    deliveries,
    epochs,
    faults,
    fidelity,
    hop_evidence,
    link_tasks,
    message_evidence,
    overhead,
    published,
    reported_copies,
    staging,
    transit_evidence,
    underlay_links,
)
