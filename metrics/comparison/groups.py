"""Group runs whose resolved experiments differ only in what makes them samples."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Struct

from metrics.degenerate import find_degeneracies
from metrics.reported import name_implementations
from metrics.rundir import RunDir

SAMPLED = ("seed", "name", "description")
"""Keys that may differ between the runs of a group."""

_FILLED_IN = tuple(f"peer.{key}" for key in ("command", "events", "says", "programs", "memory_mib", "start_cpu_s"))
"""Keys that the files of implementations fill in, with paths of the machine among them."""

REVISION = "trellis revision"
"""The manifest's version of the code, by which runs of one experiment are grouped."""

_LONGEST = 32

Settings = dict[str, Any]


class Group(Struct, frozen=True):
    """Runs of one experiment; ``settings``: the settings that differ between the groups, by dotted path."""

    label: str
    runs: tuple[RunDir, ...]
    settings: Settings

    @property
    def protocol(self) -> str:
        return str(self.runs[0].experiment["protocol"])

    @property
    def seeds(self) -> list[int]:
        return [run.plan.seed for run in self.runs]

    def is_paired_with(self, other: "Group") -> bool:
        """Return whether both groups have the same seeds, each once."""
        return sorted(set(self.seeds)) == sorted(self.seeds) == sorted(other.seeds)

    @property
    def degeneracies(self) -> list[str]:
        """The reasons why overlays of the group's experiment are alike; the degree is the mean over its runs."""
        degrees = [run.summary.headline.get("degree_mean") for run in self.runs]
        known = [float(degree) for degree in degrees if degree is not None]
        return list(find_degeneracies(self.runs[0].experiment, sum(known) / len(known) if known else None))

    @property
    def mixed(self) -> list[str]:
        """The settings in which its own runs differ, by dotted path: only runs that are grouped by folders have any."""
        return _differing([settings_of(run) for run in self.runs])

    @property
    def repeats_simulation(self) -> bool:
        """Whether a simulated run is there twice: the same seed gives the same run, not another sample."""
        seeds = [run.plan.seed for run in self.runs if run.manifest.has_ability("simulate")]
        return len(set(seeds)) < len(seeds)


def group_runs(runs: Sequence[RunDir], *, by_folder: bool = False) -> list[Group]:
    """Group runs by what differs in their experiments; if nothing does, by the revision of the code that made them.

    Args:
        runs: at least one, with plan and manifest.
        by_folder: group them by the folders that they are in instead.

    Returns:
        The groups in the order of their first runs. Labels are unique.
    """
    settings = _folders(runs) if by_folder else [settings_of(run) for run in runs]
    if not by_folder and all(each == settings[0] for each in settings):
        settings = [{"revision": run.manifest.versions.get(REVISION)} for run in runs]
    members: dict[bytes, list[int]] = {}
    for number, each in enumerate(settings):
        members.setdefault(msgspec.json.encode(each, order="deterministic"), []).append(number)
    firsts = [settings[numbers[0]] for numbers in members.values()]
    paths = _differing(firsts)
    protocols = [_name(runs[numbers[0]].experiment) for numbers in members.values()]
    return [
        Group(label, tuple(runs[number] for number in numbers), {path: each.get(path) for path in paths})
        for label, numbers, each in zip(_labels(protocols, firsts), members.values(), firsts, strict=True)
    ]


def _folders(runs: Sequence[RunDir]) -> list[Settings]:
    """Return the folder of every run, without the folders above in which all of them are."""
    paths = [str(run.path.resolve().parent).split("/") for run in runs]
    levels = zip(*(path[:-1] for path in paths), strict=False)
    above = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, levels))
    return [{"folder": "/".join(path[above:])} for path in paths]


def settings_of(run: RunDir) -> Settings:
    """Return the settings of a run's experiment by dotted path, without the settings in which samples may differ."""
    filled_in = _FILLED_IN if name_implementations(run.experiment) else ()
    return {path: value for path, value in _flatten("", run.experiment) if path not in (*SAMPLED, *filled_in)} | (
        {"peer.versions": name_implementations(run.experiment, versions=True)} if filled_in else {}
    )


def _name(experiment: Settings) -> str:
    """Return the protocol of an experiment, with its implementations if it names some."""
    names = name_implementations(experiment)
    return f"{experiment['protocol']} ({names})" if names else str(experiment["protocol"])


def own_settings(groups: Sequence[Group]) -> dict[str, str]:
    """Return the settings of one protocol only, whose groups all have the same value, by path: the protocol.

    A comparison of protocols has many such settings, and they do not distinguish its groups.
    """
    found = {}
    for path in dict.fromkeys(path for group in groups for path in group.settings):
        those = [group for group in groups if group.settings.get(path) is not None]
        protocols = {group.protocol for group in those}
        if len(protocols) == 1:
            (protocol,) = protocols
            values = [group.settings.get(path) for group in groups if group.protocol == protocol]
            if len(values) < len(groups) and all(value == values[0] for value in values):
                found[path] = protocol
    return found


def _flatten(prefix: str, value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        return [(prefix, value)]
    return [pair for key, inner in value.items() for pair in _flatten(f"{prefix}.{key}" if prefix else key, inner)]


def _differing(settings: list[Settings]) -> list[str]:
    paths = dict.fromkeys(path for each in settings for path in each)
    return [path for path in paths if any(each.get(path) != settings[0].get(path) for each in settings)]


def _labels(protocols: list[str], settings: list[Settings]) -> list[str]:
    """Return the protocol if it differs, and the settings that differ between the groups of the same protocol."""
    found: list[str] = []
    for protocol, each in zip(protocols, settings, strict=True):
        same = [other for name, other in zip(protocols, settings, strict=True) if name == protocol]
        parts = [f"{path}={_short(each.get(path))}" for path in _differing(same)]
        if len(set(protocols)) > 1 or not parts:
            parts.insert(0, protocol)
        label = ", ".join(parts)
        found.append(label if label not in found else f"{label} #{len(found) + 1}")
    return found


def _short(value: Any) -> str:  # noqa: ANN401 - any JSON value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
