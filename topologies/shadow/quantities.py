"""Times, rates and signals as Shadow writes them: ``10 min``, ``50 Mbit``, ``SIGTERM``.

A number without a unit has seconds, or bits per second. Units are case-sensitive, and numbers are whole, as in Shadow.
"""

import re
import signal
from typing import Final

_SECOND_NS: Final = 1_000_000_000

TIMES_NS: Final = {
    unit: factor
    for units, factor in (
        ("ns nanosecond nanoseconds", 1),
        ("us \u03bcs microsecond microseconds", 1_000),
        ("ms millisecond milliseconds", 1_000_000),
        ("s sec secs second seconds", _SECOND_NS),
        ("m min mins minute minutes", 60 * _SECOND_NS),
        ("h hr hrs hour hours", 3600 * _SECOND_NS),
    )
    for unit in units.split()
}

_PREFIXES: Final = {
    prefix: factor
    for prefixes, factor in (
        (("K", "kilo"), 10**3),
        (("Ki", "kibi"), 2**10),
        (("M", "mega"), 10**6),
        (("Mi", "mebi"), 2**20),
        (("G", "giga"), 10**9),
        (("Gi", "gibi"), 2**30),
        (("T", "tera"), 10**12),
        (("Ti", "tebi"), 2**40),
    )
    for prefix in prefixes
}

RATES_BIT: Final = {"bit": 1, "bits": 1} | {
    f"{prefix}{unit}": factor for prefix, factor in _PREFIXES.items() for unit in ("bit", "bits")
}

_QUANTITY: Final = re.compile(r"\s*([0-9]{1,18})\s*([A-Za-z\u03bc]{0,20})\s*", re.ASCII)

SIGNALS: Final = {number.name: number.value for number in signal.Signals if number.value < 32}
"""The signals that Shadow knows: those below the real-time ones."""


def parse_time_ns(value: object) -> int | None:
    """Return a time in ns; None if the value is none."""
    return _parse(value, TIMES_NS, _SECOND_NS)


def parse_rate_mbit(value: object) -> float | None:
    """Return a rate in Mbit/s; None if the value is none."""
    bits = _parse(value, RATES_BIT, 1)
    return None if bits is None else bits / 1e6


def _parse(value: object, units: dict[str, int], default: int) -> int | None:
    if type(value) is int:
        return value * default if 0 <= value < 10**18 else None
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[2] and found[2] not in units):
        return None
    return int(found[1]) * (units[found[2]] if found[2] else default)


def parse_signal(value: object) -> str | None:
    """Return the name of a signal, such as ``SIGTERM``; None if the value is neither a name nor a number of one."""
    if isinstance(value, str):
        return value if value in SIGNALS else None
    return next((name for name, number in SIGNALS.items() if type(value) is int and number == value), None)


def write_time(ns: int) -> str:
    """Return a time as Shadow reads it, in the largest unit in which it is whole."""
    for unit, factor in (("s", _SECOND_NS), ("ms", 1_000_000), ("us", 1_000)):
        if ns % factor == 0:
            return f"{ns // factor} {unit}"
    return f"{ns} ns"


def write_rate(mbit: float) -> str:
    """Return a rate in Mbit/s as Shadow reads it; a whole number of bytes per second, as Shadow demands."""
    bits = max(8, round(mbit * 1e6 / 8) * 8)
    for unit, factor in (("Mbit", 10**6), ("Kbit", 10**3)):
        if bits % factor == 0:
            return f"{bits // factor} {unit}"
    return f"{bits} bit"
