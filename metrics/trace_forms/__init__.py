"""The forms of traces of other programs that Trellis reads and writes: one registry, one module per form.

A form's module has ``open_form(mapping) -> Reading`` if Trellis reads the form, and ``write_files(run, folder) ->
list[str]`` if Trellis writes it, which returns a sentence for everything that the form cannot hold. The module is
imported when it is used. ``trellis import`` and ``trellis export`` follow from ``FORMS``. To add a form, write its
module and add it here.

``events`` is the common part of all forms: the events of ``peer.trace`` with names in place of numbers. An import
(``importing``) numbers the names (``numbering``), writes our traces, and makes tables of them (``tables``). An export
(``exporting``) reads a run's traces and names the numbers.
"""

from importlib import import_module
from types import ModuleType
from typing import Final

from msgspec import Struct

from peer.interop import CONTRACT


class Form(Struct, frozen=True):
    """A form of traces.

    Attributes:
        name: its name in ``trellis import`` and ``trellis export``.
        help: a description for the command line.
        module: the module, in this package.
        reads: whether Trellis reads it.
        writes: whether Trellis writes it.
        mapped: whether a mapping must say where the fields are (``metrics.trace_forms.ndjson``).
    """

    name: str
    help: str
    module: str
    reads: bool = False
    writes: bool = False
    mapped: bool = False

    def load(self) -> ModuleType:
        return import_module(f"{__name__}.{self.module}")


FORMS: Final[dict[str, Form]] = {
    form.name: form
    for form in (
        Form("pubsub-trace", "go-libp2p-pubsub's traces, JSON or protobuf, compressed or not", "pubsub", reads=True),
        Form("ndjson-trace", "lines of JSON, by a mapping", "ndjson", reads=True, mapped=True),
        Form("pubsub-json", "go-libp2p-pubsub's trace events as lines of JSON", "pubsub_json", writes=True),
        Form("pubsub-protobuf", "go-libp2p-pubsub's trace events as gzipped protobuf", "pubsub_protobuf", writes=True),
        Form("netviz", "an animation for ethp2p's netviz (.bctrace)", "netviz", writes=True),
        Form(CONTRACT, f"the folder of {CONTRACT}", "interop", reads=True, writes=True),
    )
}
