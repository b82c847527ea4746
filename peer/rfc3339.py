"""Times as in RFC 3339, as programs print them: with an offset or ``Z``, and any number of digits of a second."""

import re
from datetime import datetime
from typing import Final, NamedTuple

_SECOND_NS: Final = 1_000_000_000
_DIGITS: Final = 9
_FORM: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class PrintedTime(NamedTuple):
    """A time.

    Attributes:
        epoch_ns: ns since the epoch.
        resolution_ns: the value of its last digit, at least 1 ns: the instant is less than this after ``epoch_ns``.
    """

    epoch_ns: int
    resolution_ns: int

    @property
    def last_ns(self) -> int:
        """The last instant that is printed like this (ns since the epoch)."""
        return self.epoch_ns + self.resolution_ns - 1


def parse_time(text: str) -> PrintedTime:
    """Parse a time.

    Raises:
        ValueError: it is not a time as in RFC 3339.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a time as in RFC 3339, got {text[:60]!r}")
    whole, fraction, zone = found.groups()
    second = datetime.fromisoformat(whole.upper().replace(" ", "T") + zone.upper().replace("Z", "+00:00"))
    digits = fraction or ""
    epoch_ns = int(second.timestamp()) * _SECOND_NS + int(digits.ljust(_DIGITS, "0"))
    return PrintedTime(epoch_ns, 10 ** (_DIGITS - len(digits)))
