"""Recognises files in forms that Trellis does not read, so that an error can name the form."""

import re
from collections.abc import Sequence

from topologies.reading import Row, parse_number

_FORMS = {
    "GraphML": re.compile(r"\s*<[^\0]*<?graphml\b", re.IGNORECASE),
    "XML or HTML": re.compile(r"\s*<"),
    "JSON": re.compile(r"""\s*(\{|\[\s*[\[{"\d-])"""),
    "GML": re.compile(r"([^\n]*\n){0,20}?\s*graph\s*\[", re.IGNORECASE),
    "Graphviz DOT": re.compile(r"\s*(strict\s+)?(di)?graph\b[^\[{]{0,100}\{", re.IGNORECASE),
}


def name_form(text: str) -> str | None:
    """Return the name of the form that a text begins in; None if it may be a table."""
    beginning = text[:4_000]
    return next((name for name, pattern in _FORMS.items() if pattern.match(beginning)), None)


def are_pairs(rows: Sequence[Row]) -> bool:
    """Return whether rows can be a list of pairs of hosts with their delays, after an optional header.

    The first two cells of each row are two different hosts, no pair has two rows, and there are few hosts for so many
    rows. Hosts that are numbers are whole ones, and are at least three.
    """
    has_header = len(rows[0].cells) > 2 and parse_number(rows[0].cells[2]) is None
    listed = rows[1:] if has_header else rows
    pairs = {(row.cells[0], row.cells[1]) for row in listed if 3 <= len(row.cells) <= 8}
    if not pairs or len(pairs) < len(listed) or any(a == b for a, b in pairs):
        return False
    hosts = {host for pair in pairs for host in pair}
    if all(parse_number(host) is None for host in hosts):
        return len(hosts) <= len(pairs) + 1
    return all(host.isdigit() for host in hosts) and 3 <= len(hosts) <= len(pairs)
