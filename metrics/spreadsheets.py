"""Protect text in CSV files: a spreadsheet takes a cell that begins like a formula as one, and computes it.

Such cells get an apostrophe in front, which spreadsheets take as the sign of text (OWASP: CSV injection). Numbers are
not text and stay unchanged.
"""

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_FORMULA: Final = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""The characters with which a formula may begin, also in their wide forms."""


def plain_cell(value: Any) -> Any:  # noqa: ANN401 - any cell
    """Return a cell's value; text that begins like a formula with an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and re.match(_FORMULA, value) else value


def plain_column(column: pa.Array) -> pa.Array:
    """Return a column of strings with an apostrophe in front of those that begin like a formula."""
    quoted = pc.binary_join_element_wise(pa.scalar("'"), column, pa.scalar(""))
    return pc.if_else(pc.match_substring_regex(column, _FORMULA), quoted, column)
