"""``trellis import``: validate measured latencies, say what is in them, and write them in a form of choice."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from harness.terminal import printable
from topologies.importers import IMPORTERS, Importer, Missing, Options

WRITTEN = tuple(name for name, importer in IMPORTERS.items() if importer.writes)
"""The forms that Trellis writes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_subparsers(dest="form", metavar="FORM", required=True)
    for importer in IMPORTERS.values():
        form = forms.add_parser(importer.name, help=f"read {importer.help}")
        if importer.path != "shipped":
            form.add_argument("path", type=Path)
        _add_options(form, importer)
        form.add_argument("--out", type=Path, required=True, metavar="FILE", help="write one-way delays to this file")
        form.add_argument(
            "--to", choices=WRITTEN, help="the form to write (default: mesh if FILE ends in .json, otherwise matrix)"
        )


def _add_options(form: argparse.ArgumentParser, importer: Importer) -> None:
    """Add the importer's options. The names of their values are those of ``Options``."""
    if "times" in importer.options:
        times = form.add_mutually_exclusive_group()
        times.add_argument("--rtt", dest="times", action="store_const", const="rtt", help="the times are round trips")
        times.add_argument(
            "--one-way", dest="times", action="store_const", const="one-way", help="the times are one-way delays"
        )
    if "directed" in importer.options:
        form.add_argument(
            "--directed", action=argparse.BooleanOptionalAction, help="whether a row is about one direction only"
        )
    if "missing" in importer.options:
        form.add_argument(
            "--missing", choices=get_args(Missing), default="refuse", help="pairs without a time (default refuse)"
        )


def run(arguments: argparse.Namespace) -> int:
    """Read and validate the data, write them, and print their statistics, their provenance and what was filled.

    Raises:
        ExperimentError: the data is invalid; the message names the file, line and column.
    """
    from harness.errors import ExperimentError
    from harness.experiment.document import input_errors
    from topologies.statistics import describe_delays

    given = {name: value for name in Options.__struct_fields__ if (value := getattr(arguments, name, None)) is not None}
    with input_errors():
        found = IMPORTERS[arguments.form].read(getattr(arguments, "path", None), Options(**given))
    form = arguments.to or ("mesh" if arguments.out.suffix == ".json" else "matrix")
    try:
        left_out = IMPORTERS[form].write(arguments.out, found)
    except OSError as error:
        raise ExperimentError(str(arguments.out), error.strerror or "cannot be written") from None
    underlay = found.underlay
    print(f"{arguments.out}: one-way delays in ms between {underlay.size} hosts")
    described = describe_delays([host.name for host in underlay.hosts], underlay.delay_ms)
    remarks = [f"{name}: {text}" for name, text in described.items()]
    print("\n".join(printable(remark) for remark in [*remarks, *found.provenance.describe(), *left_out]))
    return 0
