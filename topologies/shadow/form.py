"""Reads ``shadow.yaml``: its keys, its rules between keys, and the remarks on keys that have no effect here."""

import re
import shlex
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from topologies.limits import FASTEST_MBIT, MOST_HOSTS, SLOWEST_MBIT
from topologies.reading import InputError, read_text
from topologies.shadow import keys
from topologies.shadow.keys import Ignored, Refused, Rule
from topologies.shadow.quantities import parse_rate_mbit, parse_signal, parse_time_ns
from topologies.shadow.texts import parse_yaml

LARGEST_BYTES: Final = 64 << 20
"""Limit on the size of a file."""

LONGEST_NS: Final = 7 * 24 * 3600 * 10**9
"""Limit on ``general.stop_time``: a week, as for other experiments."""

LARGEST_SEED: Final = 2**32 - 1

_HOST_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}\Z")
"""Shadow allows 253 characters, the kernel 64."""
UPWARDS: Final = re.compile(r"(?<![\w./-])\.\./\.\./\.\./")
"""Leads from the folder of a host in Shadow to the folder in which Shadow was started, at the beginning of a path."""

Section = dict[str, Any]


class Process(Struct, frozen=True):
    """A process of a host.

    Attributes:
        path: the program, as the file has it.
        args: its arguments.
        environment: its environment variables.
        start_ns: when it is started, after the start of the experiment.
        shutdown_ns: when it gets ``shutdown_signal``; None = never.
        shutdown_signal: a signal's name.
        expected: ``running``, ``exited STATUS`` or ``signalled SIGNAL``.
    """

    path: str
    args: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    start_ns: int = 0
    shutdown_ns: int | None = None
    shutdown_signal: str = "SIGTERM"
    expected: str = "exited 0"


class ShadowHost(Struct, frozen=True):
    """A host; rates in Mbit/s, None = those of its node in the graph."""

    name: str
    network_node_id: int
    up_mbit: float | None
    down_mbit: float | None
    processes: tuple[Process, ...]


class GraphSource(Struct, frozen=True):
    """Where the graph is: in a file, in the text ``inline``, or nowhere (the switch)."""

    file: str | None = None
    packed: bool = False
    inline: str | None = None


class ShadowFile(Struct, frozen=True):
    """An experiment of Shadow.

    Attributes:
        stop_ns: its length.
        seed: of its random draws.
        graph: where its graph is.
        shortest: whether packets take shortest paths; otherwise the link between two nodes.
        hosts: in the order of their names, in which Shadow numbers them, too. If they are called ``node0`` to
            ``node<N-1>``, they are in the order of these numbers.
        remarks: a sentence for each kind of keys that have no effect here.
    """

    stop_ns: int
    seed: int
    graph: GraphSource
    shortest: bool
    hosts: tuple[ShadowHost, ...]
    remarks: tuple[str, ...]


def read_shadow(path: Path) -> ShadowFile:
    """Read an experiment of Shadow.

    Raises:
        InputError: the file is missing or is not YAML, or a key is unknown, refused or invalid; the place is the file
            with the key.
    """
    return _read(str(path), read_text(path, LARGEST_BYTES))


@lru_cache(maxsize=2)
def _read(place: str, text: str) -> ShadowFile:
    """Read a text. A command reads the same file several times: as an experiment, as an underlay, for the remarks."""
    return _Reader(place).read(parse_yaml(place, text))


class _Reader:
    """Reads the sections of one file, and keeps the keys without effect.

    Args:
        file: the file, for errors.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._ignored: dict[str, list[str]] = {}
        self._upwards: list[str] = []

    def read(self, document: object) -> ShadowFile:
        top = self._section("", document, keys.TOP)
        general = self._section("general", top.get("general"), keys.GENERAL)
        network = self._section("network", top.get("network"), keys.NETWORK)
        self._optional("experimental", top, keys.EXPERIMENTAL)
        self._optional("host_option_defaults", top, keys.HOST_OPTIONS)
        stop_ns = self._time("general.stop_time", general.get("stop_time"))
        if not 0 < stop_ns <= LONGEST_NS:
            raise self._error("general.stop_time", "expected more than 0 and at most a week")
        seed = general.get("seed", 1)
        if type(seed) is not int or not 0 <= seed <= LARGEST_SEED:
            raise self._error("general.seed", f"expected an integer from 0 to {LARGEST_SEED:,}", seed)
        return ShadowFile(
            stop_ns=stop_ns,
            seed=seed,
            graph=self._graph(network.get("graph")),
            shortest=self._flag("network.use_shortest_path", network.get("use_shortest_path", True)),
            hosts=tuple(self._hosts(top.get("hosts"), stop_ns)),
            remarks=tuple(self._remarks()),
        )

    # ------------------------------------------------------------------------------------------------- network

    def _graph(self, value: object) -> GraphSource:
        place = "network.graph"
        graph = self._section(place, value, keys.GRAPH)
        kind = graph.get("type")
        if kind == "1_gbit_switch":
            for name in ("file", "inline"):
                if name in graph:
                    raise self._error(f"{place}.{name}", "type 1_gbit_switch has a graph of its own")
            return GraphSource()
        if kind != "gml":
            raise self._error(f"{place}.type", 'expected "gml" or "1_gbit_switch"', kind)
        if ("file" in graph) == ("inline" in graph):
            raise self._error(place, "expected either file or inline")
        if "inline" in graph:
            return GraphSource(inline=self._text(f"{place}.inline", graph["inline"]))
        file = self._section(f"{place}.file", graph["file"], keys.GRAPH_FILE)
        packed = file.get("compression")
        if packed not in (None, "xz"):
            raise self._error(f"{place}.file.compression", 'expected "xz" or null', packed)
        return GraphSource(file=self._text(f"{place}.file.path", file.get("path")), packed=packed == "xz")

    # --------------------------------------------------------------------------------------------------- hosts

    def _hosts(self, value: object, stop_ns: int) -> Iterator[ShadowHost]:
        hosts = self._mapping("hosts", value)
        if not 2 <= len(hosts) <= MOST_HOSTS:
            raise self._error("hosts", f"expected from 2 to {MOST_HOSTS:,} hosts, got {len(hosts):,}")
        for name in _in_order(hosts):
            place = f"hosts.{name[:80]}"
            if name == "localhost" or not (_HOST_NAME.match(name) and all(name.split("."))):
                raise self._error(place, "expected a host name of at most 64 characters: a to z, 0 to 9, hyphens, dots")
            host = self._section(place, hosts[name], keys.HOST)
            self._optional(f"{place}.host_options", host, keys.HOST_OPTIONS)
            node = host.get("network_node_id")
            if type(node) is not int or not 0 <= node < 2**32:
                raise self._error(f"{place}.network_node_id", "expected the id of a node of the graph", node)
            processes = host.get("processes")
            if not isinstance(processes, list):
                raise self._error(f"{place}.processes", "expected a list", processes)
            yield ShadowHost(
                name=name,
                network_node_id=node,
                up_mbit=self._rate(f"{place}.bandwidth_up", host.get("bandwidth_up")),
                down_mbit=self._rate(f"{place}.bandwidth_down", host.get("bandwidth_down")),
                processes=tuple(
                    self._process(f"{place}.processes[{number}]", each, stop_ns)
                    for number, each in enumerate(processes)
                ),
            )

    def _process(self, place: str, value: object, stop_ns: int) -> Process:
        process = self._section(place, value, keys.PROCESS)
        start_ns = self._time(f"{place}.start_time", process.get("start_time", 0))
        if start_ns >= stop_ns:
            raise self._error(f"{place}.start_time", "expected a time before general.stop_time", process["start_time"])
        shutdown_ns = None
        if process.get("shutdown_time") is not None:
            shutdown_ns = self._time(f"{place}.shutdown_time", process["shutdown_time"])
            if not start_ns < shutdown_ns < stop_ns:
                problem = "expected a time after start_time and before general.stop_time"
                raise self._error(f"{place}.shutdown_time", problem, process["shutdown_time"])
        given = process.get("shutdown_signal", "SIGTERM")
        shutdown_signal = parse_signal(given)
        if shutdown_signal is None:
            raise self._error(f"{place}.shutdown_signal", "expected a signal such as SIGTERM", given)
        return Process(
            path=self._text(f"{place}.path", process.get("path")),
            args=self._args(f"{place}.args", process.get("args", "")),
            environment=self._environment(f"{place}.environment", process.get("environment", {})),
            start_ns=start_ns,
            shutdown_ns=shutdown_ns,
            shutdown_signal=shutdown_signal,
            expected=self._expected(f"{place}.expected_final_state", process.get("expected_final_state")),
        )

    def _args(self, place: str, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            try:
                words = shlex.split(value)
            except ValueError as error:
                raise self._error(place, f"expected arguments as a shell has them: {error}") from None
        elif isinstance(value, list) and all(isinstance(word, str) for word in value):
            words = value
        else:
            raise self._error(place, "expected a text or a list of texts", value)
        for word in words:
            if "\0" in word:
                raise self._error(place, "expected texts without null characters")
            if UPWARDS.search(word):
                self._upwards.append(place)
        return tuple(words)

    def _environment(self, place: str, value: object) -> dict[str, str]:
        if value == "":  # Shadow's own default
            return {}
        found = self._mapping(place, value)
        for name, text in found.items():
            if not name or "=" in name or "\0" in name:
                raise self._error(place, "expected names of variables without =", name)
            if not isinstance(text, str) or "\0" in text:
                raise self._error(f"{place}.{name[:80]}", "expected a text", text)
        return found

    def _expected(self, place: str, value: object) -> str:
        if value is None:
            return "exited 0"
        if value == "running":
            return "running"
        if isinstance(value, dict) and len(value) == 1:
            [(kind, what)] = value.items()
            if kind == "exited" and type(what) is int and 0 <= what <= 255:
                return f"exited {what}"
            if kind == "signaled" and (name := parse_signal(what)) is not None:
                return f"signalled {name}"
        raise self._error(place, "expected running, {exited: STATUS} or {signaled: SIGNAL}", value)

    # -------------------------------------------------------------------------------------------------- values

    def _section(self, place: str, value: object, known: dict[str, Rule]) -> Section:
        """Return a section. Refuse unknown keys and values that Trellis cannot honour; keep ignored keys."""
        section = self._mapping(place, value)
        for name, given in section.items():
            if name.startswith("x-") and not place:
                continue  # an extension, for parts that the file uses several times
            here = f"{place}.{name[:80]}" if place else name[:80]
            rule = known.get(name)
            if rule is None:
                raise self._error(here, _hint(name, known))
            if isinstance(rule, Ignored):
                self._ignored.setdefault(rule.why, []).append(here)
            if isinstance(rule, Refused) and not rule.is_usual(given):
                raise self._error(here, f"not possible here: {rule.why}")
        return section

    def _optional(self, place: str, parent: Section, known: dict[str, Rule]) -> None:
        """Read a section of which nothing is used."""
        if (value := parent.get(place.rpartition(".")[2])) is not None:
            self._section(place, value, known)

    def _mapping(self, place: str, value: object) -> Section:
        if value is None:
            raise self._error(place or "the file", "missing: expected keys and values")
        if not isinstance(value, dict):
            raise self._error(place or "the file", "expected keys and values", value)
        for name in value:
            if not isinstance(name, str):
                raise self._error(place or "the file", "expected texts as keys; put other keys in quotes", name)
        return value

    def _text(self, place: str, value: object) -> str:
        if not isinstance(value, str) or not value or "\0" in value:
            raise self._error(place, "expected a text", value)
        return value

    def _flag(self, place: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self._error(place, "expected true or false", value)
        return value

    def _time(self, place: str, value: object) -> int:
        time_ns = parse_time_ns(value)
        if time_ns is None:
            raise self._error(place, 'expected a time such as "10 s"', value)
        return time_ns

    def _rate(self, place: str, value: object) -> float | None:
        if value is None:
            return None
        mbit = parse_rate_mbit(value)
        if mbit is None or not SLOWEST_MBIT <= mbit <= FASTEST_MBIT:
            raise self._error(place, 'expected a rate such as "50 Mbit", from 1 Kbit to 1 Tbit', value)
        return mbit

    def _remarks(self) -> Iterator[str]:
        """Yield a sentence per reason why keys have no effect; of many keys, the first ones are named."""
        for why, places in self._ignored.items():
            names = list(dict.fromkeys(places))
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            verb = "has" if len(names) == 1 else "have"
            yield f"{', '.join(names[:3])}{more} {verb} no effect: {why}"
        if self._upwards:
            processes = len(set(self._upwards))
            several = "es" if processes > 1 else ""
            yield f"../../../ in the args of {processes:,} process{several} stands for the folder of this file"

    def _error(self, place: str, problem: str, *got: object) -> InputError:
        """Return the error at a place; ``got``: the value that is wrong."""
        shown = f", got {_shown(got[0])}" if got else ""
        return InputError(f"{self._file}: {_printable(place)}", f"{problem}{shown}")


def _in_order(names: Iterable[str]) -> list[str]:
    """Return the names of hosts in their order. Node i of gossipsub-interop is the host ``node<i>``."""
    named = sorted(names)
    numbered = [f"node{number}" for number in range(len(named))]
    return numbered if sorted(numbered) == named else named


def _hint(name: str, known: dict[str, Rule]) -> str:
    """Return what an unknown key may have been meant to be."""
    if (earlier := keys.EARLIER.get(name)) is not None:
        return f"unknown key; {earlier}"
    near = get_close_matches(name, known, n=1)
    return f"unknown key; did you mean {near[0]}?" if near else "unknown key; docs/shadow.md lists the known ones"


def _shown(value: object) -> str:
    """Return a value as an error shows it, on one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a long integer"
    return _printable(repr(value)[:60])


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)
