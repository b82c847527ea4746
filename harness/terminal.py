"""What is printed: text of runs, machines and stores may have been written by anybody.

Control characters would move the cursor, set the terminal's title or hide other lines.
"""

import json
import sys
from typing import IO

import msgspec

from metrics.foreign_text import printable as printable


def shorten(text: str, most: int = 60) -> str:
    """Return a text of more than ``most`` characters without its end, so that a line has room for an explanation."""
    return text if len(text) <= most else f"{text[:57]}..."


def one_line(text: str) -> str:
    """Return a text on one line, with words that no reader reads to the end cut short. Most paths stay whole."""
    return " ".join(shorten(word, most=200) for word in text.split())


def say(*lines: str, file: IO[str] | None = None) -> None:
    """Print lines that may have text of a run in them, on standard output if no file is given."""
    print(*map(printable, lines), sep="\n", file=file, flush=True)


def say_json(value: object) -> None:
    """Print a value as JSON on one line, with escapes for all letters that are not ASCII."""
    plain = msgspec.json.decode(msgspec.json.encode(value))
    print(json.dumps(plain, separators=(",", ":")), file=sys.stdout)
