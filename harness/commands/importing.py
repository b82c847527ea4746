"""``trellis import``: turn published latency data into a matrix of one-way delays."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from harness.terminal import printable

if TYPE_CHECKING:
    from topologies.model import Matrix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_subparsers(dest="form", metavar="FORM", required=True)
    wondernetwork = forms.add_parser("wondernetwork", help="read WonderNetwork's pings from a folder or a file")
    matrix = forms.add_parser("matrix", help="validate a square matrix")
    matrix.add_argument("--rtt", action="store_true", help="the file holds round-trip times: halve them")
    for form in (wondernetwork, matrix):
        form.add_argument("path", type=Path)
        form.add_argument("--out", type=Path, required=True, metavar="FILE.csv", help="write the matrix to this file")


def run(arguments: argparse.Namespace) -> int:
    """Read and validate the data, write the matrix, and print its statistics and what was estimated or left out.

    Raises:
        ExperimentError: the data is invalid; the message names the file, line and column.
    """
    from harness.errors import ExperimentError
    from harness.experiment.document import input_errors
    from topologies.matrix import write_matrix
    from topologies.statistics import describe_matrix

    with input_errors():
        names, delay_ms, remarks = (_wondernetwork if arguments.form == "wondernetwork" else _matrix)(arguments)
    try:
        write_matrix(arguments.out, names, delay_ms)
    except OSError as error:
        raise ExperimentError(str(arguments.out), error.strerror or "cannot be written") from None
    print(f"{arguments.out}: one-way delays in ms between {len(names)} hosts")
    print("\n".join(printable(remark) for remark in [*describe_matrix(names, delay_ms), *remarks]))
    return 0


def _wondernetwork(arguments: argparse.Namespace) -> tuple[list[str], Matrix, list[str]]:
    from topologies.pings import read_measurements
    from topologies.wondernetwork import build_underlay

    measurements = read_measurements(arguments.path)
    underlay = build_underlay(measurements)
    reverse, relayed = (int((underlay.filled == how).sum()) for how in (1, 2))
    filled = (
        f"filled: {reverse} pairs taken from the reverse direction, {relayed} estimated over a relay, "
        f"{measurements.unknown_rows} rows of unlisted servers left out"
    )
    return [host.name for host in underlay.hosts], underlay.delay_ms, [filled, "jitter: not in the matrix"]


def _matrix(arguments: argparse.Namespace) -> tuple[list[str], Matrix, list[str]]:
    from topologies.limits import LARGEST_DELAY_MS
    from topologies.matrix import read_matrix_file

    read = read_matrix_file(arguments.path, 2 * LARGEST_DELAY_MS if arguments.rtt else LARGEST_DELAY_MS)
    delay_ms = read.delay_ms / 2 if arguments.rtt else read.delay_ms
    own = int((read.own_ms > 0).sum())
    ignored = f"ignored: the delays of {own} hosts to themselves, at most {read.own_ms.max():g} ms in the file"
    return read.names, delay_ms, [ignored] if own else []
