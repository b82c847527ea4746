"""``trellis import``: validate latencies or traces, say what is in them, and write them in our forms."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from harness.terminal import printable, say
from metrics.trace_forms import FORMS, Form
from topologies.importers import Importer, Missing, Options, TopoReference
from topologies.kinds import IMPORTERS

WRITTEN = tuple(name for name, importer in IMPORTERS.items() if importer.writes)
"""The forms of latencies that Trellis writes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_subparsers(dest="form", metavar="FORM", required=True)
    for importer in IMPORTERS.values():
        form = forms.add_parser(importer.name, help=f"read {importer.help}")
        if importer.path == "code":
            form.add_argument("topo", metavar="[FILE.py:]TOPO[,ARGUMENT...]", help="as the key topo of an experiment")
        elif importer.path != "shipped":
            form.add_argument("path", type=Path)
        _add_options(form, importer)
        form.add_argument("--out", type=Path, required=True, metavar="FILE", help="write one-way delays to this file")
        form.add_argument(
            "--to", choices=WRITTEN, help="the form to write (default: mesh if FILE ends in .json, otherwise matrix)"
        )
        form.set_defaults(read=_import_latencies)
    for traces in (form for form in FORMS.values() if form.reads):
        _add_traces(forms.add_parser(traces.name, help=f"read {traces.help}"), traces)


def _add_traces(form: argparse.ArgumentParser, traces: Form) -> None:
    form.add_argument("path", type=Path, help="a trace, or a folder of traces")
    if traces.mapped:
        form.add_argument(
            "--mapping", type=Path, required=True, metavar="FILE", help="a TOML file that says which key holds what"
        )
    form.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="write traces and tables to this new folder"
    )
    form.set_defaults(read=_import_traces)


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
    """Read and validate the data, write them, and print what is in them.

    Raises:
        ExperimentError: the data are invalid; the message names the file and the place in it.
    """
    arguments.read(arguments)
    return 0


def _import_latencies(arguments: argparse.Namespace) -> None:
    """Print their statistics, their provenance and what was filled."""
    from harness.errors import ExperimentError
    from harness.experiment.document import input_errors
    from topologies.statistics import describe_delays

    given = {name: value for name in Options.__struct_fields__ if (value := getattr(arguments, name, None)) is not None}
    path = getattr(arguments, "path", None)
    if "topo" in given:
        file, given["topo"] = TopoReference.parse(given["topo"])
        path = None if file is None else Path(file)
    with input_errors():
        found = IMPORTERS[arguments.form].read(path, Options(**given))
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


def _import_traces(arguments: argparse.Namespace) -> None:
    """Print what the traces say, and what they do not."""
    from harness.errors import ExperimentError
    from metrics.trace_forms.events import TraceError
    from metrics.trace_forms.importing import describe, import_traces

    try:
        reading = FORMS[arguments.form].load().open_form(getattr(arguments, "mapping", None))
        summary = import_traces(arguments.path, arguments.out, arguments.form, reading)
    except TraceError as error:
        raise ExperimentError(error.place, error.problem) from None
    except OSError as error:
        raise ExperimentError(str(error.filename or arguments.out), error.strerror or "cannot be written") from None
    say(f"{arguments.out}: traces and tables of {summary.nodes} nodes", *describe(summary))
