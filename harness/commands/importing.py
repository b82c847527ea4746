"""``trellis import``: turn published latency data into a matrix of one-way delays."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topologies.model import Matrix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_subparsers(dest="form", metavar="FORM", required=True)
    wondernetwork = forms.add_parser("wondernetwork", help="read WonderNetwork's pings from a folder or a file")
    matrix = forms.add_parser("matrix", help="validate a square CSV matrix")
    matrix.add_argument("--rtt", action="store_true", help="the file holds round-trip times: halve them")
    for form in (wondernetwork, matrix):
        form.add_argument("path", type=Path)
        form.add_argument("--out", type=Path, required=True, metavar="FILE.csv", help="write the matrix to this file")


def run(arguments: argparse.Namespace) -> int:
    """Read and validate the data, write the matrix, and print what was estimated or left out.

    Raises:
        ExperimentError: the data is invalid; the message names the file, line and column.
    """
    from harness.errors import ExperimentError
    from topologies.matrix import write_matrix
    from topologies.model import UnderlayError

    try:
        names, delay_ms, note = (_wondernetwork if arguments.form == "wondernetwork" else _matrix)(arguments)
    except UnderlayError as error:
        raise ExperimentError(error.place, error.problem) from None
    try:
        write_matrix(arguments.out, names, delay_ms)
    except OSError as error:
        raise ExperimentError(str(arguments.out), error.strerror or "cannot be written") from None
    print(f"{arguments.out}: one-way delays in ms between {len(names)} hosts{note}")
    return 0


def _wondernetwork(arguments: argparse.Namespace) -> tuple[list[str], Matrix, str]:
    from topologies.pings import read_measurements
    from topologies.wondernetwork import build_underlay

    measurements = read_measurements(arguments.path)
    underlay = build_underlay(measurements)
    reverse, relayed = (int((underlay.filled == how).sum()) for how in (1, 2))
    note = (
        f"; {reverse} pairs taken from the reverse direction, {relayed} estimated over a relay, "
        f"{measurements.unknown_rows} rows of unlisted servers left out. The matrix does not contain the jitter"
    )
    return [host.name for host in underlay.hosts], underlay.delay_ms, note


def _matrix(arguments: argparse.Namespace) -> tuple[list[str], Matrix, str]:
    from topologies.matrix import read_matrix

    names, matrix = read_matrix(arguments.path)
    return names, matrix / 2 if arguments.rtt else matrix, ""
