"""Implementations of peers as files: which there are, what they say, and which nodes of a run they are.

A file is TOML (``Implementation``). The words of its commands may contain ``{python}`` (the interpreter of Trellis),
``{here}`` (the file's folder) and ``{files}`` (the folder in the user's cache in which ``trellis fetch`` runs the
file's commands).
"""

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from operator import mul
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct, structs

from harness.cache import cache_folder
from harness.errors import ExperimentError
from harness.experiment.sections.peer import SCRIPTED_SAYS, MixSpec, PeerSpec, ProgramSpec, Reported
from harness.interpreter import PYTHON
from peer.core.randomness import NETWORK, substream
from peer.interop import CONTRACT, Contract, Events

FOLDER: Final = Path(__file__).parents[2] / "playbooks" / "implementations"
"""The implementations that Trellis knows."""

_COSTS: Final = ("memory_mib", "start_cpu_s")
_SET: Final = ("command", "says", *_COSTS)
"""The keys that an implementation sets."""


class Implementation(Struct, forbid_unknown_fields=True, frozen=True):
    """A file of an implementation.

    Attributes:
        version: of the program, for people.
        about: what it is, in a sentence.
        command: the program and its arguments.
        contract: how it is driven: it reads and writes ``lines`` (docs/programs.md), or it follows a script
            (docs/gossipsub-interop.md). A list if it can be driven in both ways.
        transport: of its links.
        says: what it reports besides publications and deliveries.
        memory_mib: memory (PSS) of a peer with all its processes.
        start_cpu_s: processor time that it needs until it is ready.
        idle_cpu_ms_per_s: processor time of a peer without messages (ms per second), with its heartbeats and the
            process that drives it; None = not known. ``harness.planning.processors`` says on which machine.
        copy_cpu_us: processor time that a copy of a message takes, sender and receiver together (us); likewise.
        fetch: the commands that get its files, run one after another in an empty folder.
        sha256: the hashes of some of these files, by their paths in the folder.
    """

    version: str
    about: str
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    memory_mib: Annotated[float, Meta(gt=0)]
    start_cpu_s: Annotated[float, Meta(gt=0)]
    contract: Contract | Annotated[tuple[Contract, ...], Meta(min_length=1)] = "lines"
    transport: Literal["tcp", "udp"] = "tcp"
    says: tuple[Reported, ...] = ()
    idle_cpu_ms_per_s: Annotated[float, Meta(ge=0)] | None = None
    copy_cpu_us: Annotated[float, Meta(ge=0)] | None = None
    fetch: tuple[tuple[str, ...], ...] = ()
    sha256: dict[str, str] = {}

    @property
    def contracts(self) -> tuple[Contract, ...]:
        """All that ``contract`` names."""
        return (self.contract,) if isinstance(self.contract, str) else self.contract


class Found(Struct, frozen=True):
    """An implementation, its name and its file.

    Attributes:
        sha256: the hash of the file and of those beside it that its commands name.
        files_sha256: likewise, without those that only ``command`` names: they do not change what is fetched.
    """

    name: str
    path: Path
    sha256: str
    files_sha256: str
    said: Implementation

    @property
    def files(self) -> Path:
        """The folder for what ``trellis fetch`` gets. Another file of the same name has another folder."""
        return cache_folder() / "implementations" / f"{self.name}-{self.files_sha256[:12]}"

    @property
    def mark(self) -> Path:
        """The file that says that the folder is whole."""
        return self.files / ".whole"

    def fill_in(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a command."""
        known = {"python": PYTHON, "here": self.path.parent, "files": self.files}
        filled = list(words)
        for name, value in known.items():
            filled = [word.replace(f"{{{name}}}", str(value)) for word in filled]
        return tuple(filled)

    def wrong_files(self, files: Path) -> Iterator[str]:
        """Yield the paths of files that are missing, or that have another hash than the implementation says."""
        for name, wanted in self.said.sha256.items():
            path = files / name
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
                yield name

    @property
    def is_there(self) -> bool:
        """Whether its files have been fetched, if it has any."""
        return not self.said.fetch or self.mark.exists()


def known_names() -> list[str]:
    """Return the names of the implementations that Trellis knows."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_implementation(name: str, place: str, folder: Path = Path()) -> Found:
    """Find an implementation by its name or the path of its file.

    Args:
        name: a name, or a path that ends in ``.toml``.
        place: where it is named, for errors.
        folder: the folder that the path is relative to. Default: the working directory.

    Raises:
        ExperimentError: there is none, or its file is invalid.
    """
    path = (folder / name).absolute() if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        content = path.read_bytes()
        said = msgspec.convert(tomllib.loads(content.decode()), Implementation)
    except FileNotFoundError:
        known = ", ".join(known_names())
        unknown = f"expected one of {known}, or a file .toml, got {name!r}"
        raise ExperimentError(place, f"{path} is not there" if name.endswith(".toml") else unknown) from None
    except (OSError, ValueError) as error:
        raise ExperimentError(str(path), str(error)) from None
    digest = hashlib.sha256(content)
    _add_files(digest, path, [word for words in said.fetch for word in words])
    files_sha256 = digest.hexdigest()
    _add_files(digest, path, said.command)
    return Found(path.stem, path, digest.hexdigest(), files_sha256, said)


def _add_files(digest: "hashlib._Hash", path: Path, words: Iterable[str]) -> None:
    """Add the files beside an implementation's file that words of its commands name to a hash; not what is in folders.

    Raises:
        ExperimentError: one of them cannot be read.
    """
    for word in words:
        if word.startswith("{here}/"):
            beside = path.parent / word.removeprefix("{here}/")
            try:
                digest.update(b"" if beside.is_dir() else beside.read_bytes())
            except OSError as error:
                raise ExperimentError(str(path), f"a command names {beside}: {error.strerror}") from None


def with_programs(peer: PeerSpec, folder: Path) -> PeerSpec:
    """Fill in what the files of the section's implementations say, and what programs report by their contract.

    Args:
        peer: the section.
        folder: the folder of the experiment file, to which the paths of implementations are relative.

    Raises:
        ExperimentError: a key contradicts them, or one of them is not on this machine.
    """
    if peer.processes:
        return _with_processes(peer)
    mix = peer.mix or ((MixSpec(peer.implementation, share=1.0),) if peer.implementation else ())
    if not mix:
        if peer.programs:
            raise ExperimentError("$.peer.programs", "Trellis fills it in; set peer.implementation or [[peer.mix]]")
        return structs.replace(peer, says=_reported(peer.events, peer.says, "$.peer.says"))
    _refuse_contradictions(peer)
    key = "$.peer.mix[{}].implementation" if peer.mix else "$.peer.implementation"
    found = [_find_fetched(each.implementation, key.format(number), folder) for number, each in enumerate(mix)]
    _refuse_transports(found)
    contract = _choose_contract(peer.events, found)
    programs = tuple(_describe(each, contract) for each in found)
    total = sum(each.share for each in mix) or 1.0
    shares = [each.share / total for each in mix]
    costs = {name: [getattr(program, name) for program in programs] for name in _COSTS}
    named = any(each.nodes for each in mix)
    means = {name: max(each) if named else sum(map(mul, each, shares)) for name, each in costs.items()}
    common = [what for what in programs[0].says if all(what in program.says for program in programs)]
    return structs.replace(
        peer,
        programs=programs,
        command=programs[0].command,
        events=contract,
        says=tuple(common),
        **means,
    )


def _with_processes(peer: PeerSpec) -> PeerSpec:
    """Fill in what processes set: the command stands for all of them.

    Raises:
        ExperimentError: another key names a program, too.
    """
    default = PeerSpec()
    for key in ("command", "says", "implementation", "mix", "programs"):
        if getattr(peer, key) != getattr(default, key):
            raise ExperimentError(f"$.peer.{key}", "peer.processes says what is run")
    if peer.events not in (default.events, "none"):
        raise ExperimentError("$.peer.events", f'expected "none" with peer.processes, got "{peer.events}"')
    return structs.replace(peer, command=peer.processes[0].command, events="none")


def _refuse_contradictions(peer: PeerSpec) -> None:
    if peer.mix and peer.implementation:
        raise ExperimentError("$.peer.mix", "expected either peer.implementation or [[peer.mix]], got both")
    default = PeerSpec()
    for key in (*_SET, "programs"):
        if getattr(peer, key) != getattr(default, key):
            raise ExperimentError(f"$.peer.{key}", "the implementation sets it")
    named = [node for each in peer.mix for node in each.nodes]
    for number, each in enumerate(peer.mix):
        if bool(each.nodes) == (each.share > 0):
            raise ExperimentError(f"$.peer.mix[{number}]", "expected either a share above 0 or nodes")
    if len(set(named)) < len(named):
        raise ExperimentError("$.peer.mix", "a node has two implementations")


def _refuse_transports(found: Sequence[Found]) -> None:
    """Refuse programs that cannot connect to each other."""
    if len({each.said.transport for each in found}) > 1:
        each = ", ".join(f"{other.name} ({other.said.transport})" for other in found)
        raise ExperimentError("$.peer.mix", f"expected implementations with the same transport, got {each}")


def _choose_contract(events: Events, found: Sequence[Found]) -> Contract:
    """Return how the programs of a run are driven: as ``peer.events`` asks, or in the first way that all of them have.

    Raises:
        ExperimentError: they have no such way.
    """
    common = [each for each in found[0].said.contracts if all(each in other.said.contracts for other in found)]
    if not common:
        each = ", ".join(f"{other.name} ({' or '.join(other.said.contracts)})" for other in found)
        raise ExperimentError("$.peer.mix", f"expected implementations with a contract in common, got {each}")
    if events == PeerSpec().events:
        return common[0]
    if events not in common:
        problem = f"expected {' or '.join(common)}, as the implementations have it, got {events}"
        raise ExperimentError("$.peer.events", problem)
    return events


def _find_fetched(name: str, place: str, folder: Path) -> Found:
    """Find an implementation whose files are there, and are those that it names.

    Raises:
        ExperimentError: they are not.
    """
    found = find_implementation(name, place, folder)
    fix = f"try: trellis fetch {found.path if name.endswith('.toml') else name}"
    if not found.is_there:
        raise ExperimentError(place, f"{found.name} has not been fetched; {fix}")
    for wrong in found.wrong_files(found.files):
        problem = f"{found.files / wrong} is not the file that {found.name} names; {fix}"
        raise ExperimentError(place, problem)
    return found


def _describe(found: Found, contract: Contract) -> ProgramSpec:
    said = found.said
    return ProgramSpec(
        implementation=found.name,
        version=said.version,
        sha256=found.sha256,
        transport=said.transport,
        command=found.fill_in(said.command),
        contract=contract,
        says=_reported(contract, said.says, str(found.path)),
        memory_mib=said.memory_mib,
        start_cpu_s=said.start_cpu_s,
        idle_cpu_ms_per_s=said.idle_cpu_ms_per_s,
        copy_cpu_us=said.copy_cpu_us,
    )


def _reported(contract: str, says: tuple[Reported, ...], place: str) -> tuple[Reported, ...]:
    """Return what a program reports.

    Args:
        contract: how it is driven.
        says: what the user says that it reports.
        place: where the user says so, for errors.

    Raises:
        ExperimentError: the contract says something else.
    """
    if contract != CONTRACT:
        return says
    if says not in ((), SCRIPTED_SAYS):
        raise ExperimentError(place, f"programs of {CONTRACT} report duplicates and nothing else of these")
    return SCRIPTED_SAYS


def assign_programs(peer: PeerSpec, nodes: int, seed: int) -> tuple[int, ...]:
    """Return which of ``peer.programs`` each node is, (nodes,); empty if there are none.

    Named nodes have their implementation. The others are drawn, so that the number of each implementation is its share,
    rounded so that the sum is right (largest remainders).

    Raises:
        ExperimentError: a named node does not exist, or nodes are left without an implementation.
    """
    if not peer.mix:
        return (0,) * nodes if peer.programs else ()
    chosen = {node: number for number, each in enumerate(peer.mix) for node in each.nodes}
    if chosen and max(chosen) >= nodes:
        raise ExperimentError("$.peer.mix", f"expected nodes from 0 to {nodes - 1}, got {max(chosen)}")
    others = [node for node in range(nodes) if node not in chosen]
    total = sum(each.share for each in peer.mix)
    if others and not total:
        raise ExperimentError("$.peer.mix", f"node {others[0]} has no implementation; give one of them a share")
    exact = [len(others) * each.share / total if total else 0.0 for each in peer.mix]
    counts = [int(amount) for amount in exact]
    remainders = sorted(range(len(exact)), key=lambda number: counts[number] - exact[number])
    for number in remainders[: len(others) - sum(counts)]:
        counts[number] += 1
    substream(seed, NETWORK, "implementations").shuffle(others)
    drawn = iter(others)
    for number, count in enumerate(counts):
        chosen |= {next(drawn): number for _ in range(count)}
    return tuple(chosen[node] for node in range(nodes))
