"""Experiment files: what can be in one, how it is read, and the page that documents it.

``form`` and ``sections`` have the types, one per section, with the text of docs/experiment-spec.md below each field.
``loader`` reads a file and names every fault with its place; ``wording`` puts types into words for that. ``links`` and
``faults`` have the rules between the keys of these sections. ``inventory`` is the file that names the machines of a
remote testbed. ``specification`` prints the page. Everything else in ``harness`` receives an ``Experiment`` and reads
no TOML.
"""
