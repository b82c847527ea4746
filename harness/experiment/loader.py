"""Reads experiment files. Every error is one line with the file and the place in it."""

import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import structs

from harness.errors import ExperimentError
from harness.experiment.abilities import refusals
from harness.experiment.document import naming_origin, place_of
from harness.experiment.faults import fault_rules
from harness.experiment.form import Experiment, section_of
from harness.experiment.hints import absence, same_meaning, suggest
from harness.experiment.implementations import with_programs
from harness.experiment.links import link_rules
from harness.experiment.sections.peer import PeerSpec
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.shadow import read_document
from harness.experiment.wording import (
    all_places,
    describe_type,
    field_names,
    field_type,
    literal_values,
    named_sections,
    one_of,
    quote,
    values_or_sections,
)
from harness.plugins import take_plugins
from harness.terminal import shorten
from harness.testbeds.registry import find_lack
from peer.core.addressing.expression import MAX_LENGTH, ExpressionError
from peer.core.addressing.keywords import check_keywords, keyword, terms_of_topics
from peer.core.payload import least_payload_bytes
from peer.interop import CONTRACT
from peer.interop.script import LEAST_MESSAGE_BYTES
from peer.protocols.description import Composition, ParameterError, section_name
from peer.protocols.registry import PROTOCOLS
from topologies.graph_kinds import GRAPH_KEYS, GRAPHS
from topologies.importers import Options
from topologies.kinds import IMPORTERS

Form = TypeVar("Form", bound=msgspec.Struct)

_FAULT = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<path>\$.*)`)?$", re.DOTALL)


def load_experiment(path: Path, overrides: Sequence[str] = (), seed: int | None = None) -> Experiment:
    """Read an experiment file and apply the command line's overrides.

    Args:
        path: the TOML file, or a ``shadow.yaml``.
        overrides: ``key=value`` with a dotted key; the value in TOML's syntax, or a bare word.
        seed: overrides the file and the overrides.

    Raises:
        ExperimentError: the file or its experiment is invalid.
    """
    document = read_document(path, overrides)
    if is_study(document):
        raise ExperimentError(str(path), f"a study, not an experiment; try: trellis sweep {path}")
    if seed is not None:
        document["seed"] = seed
    with naming_origin(path, overrides, seed=seed):
        take_plugins(document, path)
        return decode_experiment(document, path.parent)


def decode_experiment(document: dict[str, Any], folder: Path = Path()) -> Experiment:
    """Make an experiment of a document. A missing key has the protocol's value, otherwise the section's default.

    Args:
        document: the content of an experiment file.
        folder: the folder of that file. Default: the working directory.

    Raises:
        ExperimentError: a key is invalid, or two keys contradict each other.
    """
    experiment = decode(document, Experiment)
    own = _own_settings(PROTOCOLS[experiment.protocol].composition)
    sections = {name: {**settings, **document.get(name, {})} for name, settings in own.items()}
    experiment = decode({**document, **sections}, Experiment)
    experiment = structs.replace(experiment, peer=with_programs(experiment.peer, folder))
    check_rules(experiment)
    return experiment


def is_study(document: dict[str, Any]) -> bool:
    """Return whether a document is a study: only studies name measures."""
    return "measures" in document


def _own_settings(parts: Composition) -> dict[str, dict[str, Any]]:
    """Return the keys that a protocol sets for its parts, by section of the experiment."""
    own: dict[str, dict[str, Any]] = {"membership": {"kind": parts.membership["name"]}}
    for choice in (parts.overlay, parts.dissemination, parts.membership):
        settings = {name: value for name, value in choice.items() if name != "name"}
        own.setdefault(section_name(choice["name"]), {}).update(settings)
    return {name: settings for name, settings in own.items() if settings and name in Experiment.__struct_fields__}


def check_rules(experiment: Experiment) -> None:
    """Check the rules between fields.

    Raises:
        ExperimentError: two fields contradict each other.
    """
    for broken, place, problem in _rules(experiment):
        if broken:
            raise ExperimentError(place, problem)


def _rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    """Yield every rule as (broken, place, problem)."""
    for place, problem in refusals(experiment):
        yield True, place, problem
    underlay, workload, peer = experiment.underlay, experiment.workload, experiment.peer
    needs_inventory = find_lack(experiment.testbed, "inventory") is None
    problem = f'missing: testbed = "{experiment.testbed}" needs it'
    yield needs_inventory and not experiment.inventory, "$.inventory", problem
    yield from _data_rules(underlay)
    yield (
        workload.topics_per_message > workload.topics,
        "$.workload.topics_per_message",
        f"expected at most topics = {workload.topics}, got {workload.topics_per_message}",
    )
    yield peer.command == (), "$.peer.command", "expected at least the program's name, got []"
    yield (
        peer.command is not None and peer.command[:1] == ("",),
        "$.peer.command[0]",
        "expected the program's name, got ''",
    )
    yield from link_rules(experiment)
    problem = "programs need a process each: expected 1"
    yield peer.per_process > 1 and peer.command is not None, "$.peer.per_process", f"{problem}, got {peer.per_process}"
    yield (
        peer.expected_final_state == "running" and peer.command is None,
        "$.peer.expected_final_state",
        '"running" needs peer.command: Python peers exit after the stop',
    )
    yield from _program_rules(experiment)
    yield from _process_rules(experiment)
    yield from _interest_rules(experiment)
    yield from _expression_rules(experiment)
    yield from _churn_rules(experiment)
    yield from _adversary_rules(experiment)
    yield from fault_rules(experiment)
    if underlay.hosts is not None:
        yield from _host_rules(experiment, underlay.hosts)


def _data_rules(underlay: UnderlaySpec) -> Iterator[tuple[bool, str, str]]:
    importer = IMPORTERS.get(underlay.kind)
    source = importer.path if importer else ""
    missing = f'missing: kind = "{underlay.kind}" needs it'
    yield source == "named" and not underlay.path, "$.underlay.path", missing
    yield source == "code" and not underlay.topo, "$.underlay.topo", missing
    problem = f'kind = "{underlay.kind}" ' + ("names its file in topo" if source == "code" else "reads no file")
    yield bool(underlay.path) and source not in ("named", "data"), "$.underlay.path", problem
    for option in Options.__struct_fields__:
        asked = getattr(underlay, option) != getattr(Options(), option)
        taken = importer is not None and option in importer.options
        yield asked and not taken, f"$.underlay.{option}", f'kind = "{underlay.kind}" does not use it'
    for key in sorted(GRAPH_KEYS - set(GRAPHS.get(underlay.kind, ()))):
        asked = getattr(underlay, key) != getattr(UnderlaySpec(), key)
        yield asked, f"$.underlay.{key}", f'kind = "{underlay.kind}" does not use it'


def _interest_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    interests, topics = experiment.interests, experiment.workload.topics
    reads_file = interests.kind in ("file", "follower-graph")
    yield interests.kind == "file" and not interests.path, "$.interests.path", 'missing: kind = "file" needs it'
    yield bool(interests.path) and not reads_file, "$.interests.path", f'kind = "{interests.kind}" reads no file'
    if interests.kind == "popularity":
        fewest, most = interests.subscriptions_min, interests.subscriptions_max
        problem = f"expected at most subscriptions_max = {most}, got {fewest}"
        yield fewest > most, "$.interests.subscriptions_min", problem
        problem = f"expected at most workload.topics = {topics}, got {most}"
        yield most > topics, "$.interests.subscriptions_max", problem
    if interests.kind == "buckets":
        size, rest = divmod(topics, interests.buckets)
        yield (
            rest > 0,
            "$.interests.buckets",
            f"expected a divisor of workload.topics = {topics}, got {interests.buckets}",
        )
        drawn, taken = interests.buckets_per_node, interests.topics_per_bucket
        problem = f"expected at most buckets = {interests.buckets}, got {drawn}"
        yield drawn > interests.buckets, "$.interests.buckets_per_node", problem
        problem = f"expected at most the {size} topics of a bucket, got {taken}"
        yield taken > size, "$.interests.topics_per_bucket", problem


def _expression_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    expressions, workload = experiment.expressions, experiment.workload
    unused = f'kind = "{expressions.kind}" does not use it'
    yield bool(expressions.texts) and expressions.kind != "list", "$.expressions.texts", unused
    if expressions.kind == "none":
        return
    problem = f"expected 1, since messages have expressions, got {workload.topics_per_message}"
    yield workload.topics_per_message > 1, "$.workload.topics_per_message", problem
    problem = f"expected 0, since messages have expressions, got {workload.rate_exponent:g}"
    yield workload.rate_exponent > 0, "$.workload.rate_exponent", problem
    if expressions.kind == "list":
        yield not expressions.texts, "$.expressions.texts", 'missing: kind = "list" needs it'
        for place, text in enumerate(expressions.texts):
            try:
                check_keywords(text, workload.topics)
                terms_of_topics(text)
            except ExpressionError as error:
                yield True, f"$.expressions.texts[{place}]", str(error)
        longest = max(map(len, expressions.texts))
    else:
        fewest, most = expressions.terms_min, expressions.terms_max
        yield fewest > most, "$.expressions.terms_min", f"expected at most terms_max = {most}, got {fewest}"
        fewest, most = expressions.keywords_min, expressions.keywords_max
        yield fewest > most, "$.expressions.keywords_min", f"expected at most keywords_max = {most}, got {fewest}"
        problem = f"expected at most workload.topics = {workload.topics}, got {most}"
        yield most > workload.topics, "$.expressions.keywords_max", problem
        longest = expressions.terms_max * most * (len(keyword(workload.topics - 1)) + 1) - 1
        problem = f"expressions may have at most {MAX_LENGTH} characters, but these may have {longest}"
        yield longest > MAX_LENGTH, "$.expressions.keywords_max", problem
    needed, size = least_payload_bytes(longest), workload.payload_bytes
    problem = f"expected at least {needed}, since the payload has the expression, got {size}"
    yield size < needed, "$.workload.payload_bytes", problem


def _churn_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    churn = experiment.churn
    unused = f'kind = "{churn.kind}" does not use it'
    yield bool(churn.path) and churn.kind != "sessions", "$.churn.path", unused
    yield churn.kind == "script" and not churn.script, "$.churn.script", 'missing: kind = "script" needs it'
    yield bool(churn.script) and churn.kind != "script", "$.churn.script", unused
    ends_early = churn.end_s is not None and churn.end_s <= churn.origin_s
    yield ends_early, "$.churn.end_s", f"expected more than origin_s = {churn.origin_s:g}, got {churn.end_s}"
    yield churn.end_s is not None and churn.kind != "sessions", "$.churn.end_s", unused
    yield churn.flash_ratio > 0 and churn.kind == "script", "$.churn.flash_ratio", unused
    scripted = any(entry.action == "vanish" for entry in churn.script)
    lack = find_lack(experiment.testbed, "vanish")
    yield scripted and lack is not None, "$.churn.script", lack or ""
    problem = "silent crashes need the Python peer: a program of peer.command cannot silence its host"
    for vanishes, key in ((churn.silent_ratio > 0, "$.churn.silent_ratio"), (scripted, "$.churn.script")):
        yield vanishes and experiment.peer.command is not None, key, problem


def _program_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    """Yield the rules for programs that read and write lines, or follow a script."""
    peer = experiment.peer
    unused = f'events = "{peer.events}" does not use it'
    if peer.events != CONTRACT:
        yield peer.script is not None, "$.peer.script", unused
        yield peer.connect_at_s != PeerSpec().connect_at_s, "$.peer.connect_at_s", unused
    if peer.events in ("trace", "none"):
        yield peer.connect != PeerSpec().connect, "$.peer.connect", unused
        yield bool(peer.says), "$.peer.says", unused
        return
    yield peer.command is None, "$.peer.command", f'missing: events = "{peer.events}" needs it'
    running = peer.expected_final_state != "exited"
    yield running, "$.peer.expected_final_state", 'expected "exited": the program ends with the run'
    yield peer.record, "$.peer.record", "only events of Python peers can be recorded"
    several = experiment.workload.topics_per_message != 1
    yield several, "$.workload.topics_per_message", "expected 1: a program publishes each message on one topic"
    expressions = experiment.expressions.kind != "none"
    yield expressions, "$.expressions.kind", 'expected "none": programs publish to topics'
    if peer.events == CONTRACT:
        yield from _script_rules(experiment)


def _script_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    """Yield the rules for programs that follow a script."""
    peer, workload = experiment.peer, experiment.workload
    lack = find_lack(experiment.testbed, "names")
    yield lack is not None, "$.peer.events", lack or ""
    dilated = experiment.time_dilation != 1
    yield dilated, "$.time_dilation", f'expected 1: programs of peer.events = "{CONTRACT}" have their own clocks'
    changes = experiment.churn.kind != "none" or experiment.churn.flash_ratio > 0
    yield changes, "$.churn", "a script has no joins and leaves"
    if peer.script is not None:
        return  # it sets the workload
    least = LEAST_MESSAGE_BYTES
    problem = f"expected at least {least}, since a message begins with its number, got {workload.payload_bytes}"
    yield workload.payload_bytes < least, "$.workload.payload_bytes", problem
    whole = workload.warmup_s == int(workload.warmup_s)
    yield not whole, "$.workload.warmup_s", f"expected whole seconds, as scripts have, got {workload.warmup_s:g}"
    problem = f"expected more than peer.connect_at_s = {peer.connect_at_s}, got {workload.warmup_s:g}"
    yield workload.warmup_s <= peer.connect_at_s, "$.workload.warmup_s", problem


def _process_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    """Yield the rules for processes of programs that know nothing of Trellis."""
    peer, workload = experiment.peer, experiment.workload
    if peer.events != "none":
        return
    yield not peer.processes, "$.peer.processes", 'missing: events = "none" needs it'
    lack = find_lack(experiment.testbed, "shape") or find_lack(experiment.testbed, "processes")
    yield lack is not None, "$.testbed", f"processes need a network and hosts that Trellis makes: {lack}"
    why = "the programs know nothing of Trellis"
    slowed = f"expected 1: {why}, so their own timers are not slowed down"
    yield experiment.time_dilation != 1, "$.time_dilation", slowed
    yield experiment.churn.kind != "none" or experiment.churn.flash_ratio > 0, "$.churn", f"not possible: {why}"
    yield experiment.adversary.kind != "none", "$.adversary.kind", f"not possible: {why}"
    yield experiment.expressions.kind != "none", "$.expressions.kind", f"not possible: {why}"
    yield peer.record, "$.peer.record", "only events of Python peers can be recorded"
    yield peer.expected_final_state != "exited", "$.peer.expected_final_state", "each process has its own (expected)"
    end_s = workload.duration_s + workload.cooldown_s
    for number, process in enumerate(peer.processes):
        place = f"$.peer.processes[{number}]"
        yield process.start_s >= end_s, f"{place}.start_s", f"expected less than the {end_s:g} s of the run"
        shutdown_s = process.shutdown_s
        if shutdown_s is not None:
            problem = f"expected more than start_s = {process.start_s:g} and less than the {end_s:g} s of the run"
            yield not process.start_s < shutdown_s < end_s, f"{place}.shutdown_s", problem
        named = {"shutdown_signal": process.shutdown_signal, "expected": process.expected}
        for key, text in named.items():
            word = text.rpartition(" ")[2]
            unknown = word.startswith("SIG") and word not in signal.Signals.__members__
            yield unknown, f"{place}.{key}", f"there is no signal {word}"


def _adversary_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    adversary, topics = experiment.adversary, experiment.workload.topics
    unknown = [topic for topic in adversary.victim_topics if topic >= topics]
    yield bool(unknown), "$.adversary.victim_topics", f"expected topics from 0 to {topics - 1}, got {unknown}"
    aimless = adversary.kind == "topic-attacker" and not adversary.victim_topics
    yield aimless, "$.adversary.victim_topics", 'missing: kind = "topic-attacker" needs it'


def _host_rules(experiment: Experiment, hosts: int) -> Iterator[tuple[bool, str, str]]:
    unknown = [node for node in experiment.adversary.nodes if node >= hosts]
    yield bool(unknown), "$.adversary.nodes", f"expected nodes from 0 to {hosts - 1}, got {unknown}"
    topics, is_graph = experiment.workload.topics, experiment.interests.kind == "follower-graph"
    problem = f"expected {hosts} as there are hosts, since every user is a node and a topic, got {topics}"
    yield is_graph and topics != hosts, "$.workload.topics", problem
    for number, process in enumerate(experiment.peer.processes):
        problem = f"expected a node from 0 to {hosts - 1}, got {process.node}"
        yield process.node >= hosts, f"$.peer.processes[{number}].node", problem
    protocol = PROTOCOLS[experiment.protocol]
    if protocol.check is not None:
        try:
            protocol.check(section_of(experiment, protocol.name), hosts)
        except ParameterError as error:
            yield True, f"$.{protocol.section}.{error.key}", error.problem


def decode(document: dict[str, Any], form: type[Form]) -> Form:
    """Make a form of a document.

    Raises:
        ExperimentError: a key is invalid; the place is a path below ``$``.
    """
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        fault = _FAULT.match(str(error))
        assert fault is not None, "the pattern matches any text"
        raise _explain(document, form, fault["problem"], fault["path"] or "$") from None


def _explain(document: dict[str, Any], form: type[msgspec.Struct], problem: str, path: str) -> ExperimentError:
    """Return the error with what the place takes and what it has."""
    before, unnamed, _ = path.partition("[...]")
    if unnamed:
        return _explain_named(document, form, before)
    if unknown := re.search(r"unknown field `(.*)`", problem, re.DOTALL):
        return ExperimentError(
            place_of(path, unknown[1]), f"unknown field; {_key_hint(document, form, path, unknown[1])}"
        )
    if missing := re.search(r"missing required field `(.*)`", problem):
        return ExperimentError(f"{path}.{missing[1]}", "missing")
    if problem.startswith("expected "):
        return ExperimentError(path, problem)  # a relation between keys, described by the section
    kind, value = field_type(form, path), _value_at(document, path)
    meant = suggest(value, literal_values(kind)) if isinstance(value, str) else []
    hint = f"; did you mean {one_of([quote(each) for each in meant])}?" if meant else ""
    return ExperimentError(path, f"expected {describe_type(kind)}, got {_shown(value)}{hint}")


def _explain_named(document: dict[str, Any], form: type[msgspec.Struct], path: str) -> ExperimentError:
    """Return the error of the first wrong section of those with free names at a path; msgspec does not name it."""
    for name, section in cast(dict[str, Any], _value_at(document, path)).items():
        place = place_of(path, name)
        if not isinstance(section, dict):
            return ExperimentError(place, f"expected a section, got {_shown(section)}")
        try:
            decode(section, named_sections(form, path))
        except ExperimentError as error:
            return ExperimentError(place + error.path.removeprefix("$"), error.problem)
    raise AssertionError(f"one of the sections at {path} is wrong")


def _key_hint(document: dict[str, Any], form: type[msgspec.Struct], path: str, name: str) -> str:
    """Return what an unknown key may have been meant to be: a similar key here, or one of another section."""
    container = _value_at(document, path)
    is_section = isinstance(container, dict) and isinstance(container.get(name), dict)
    here = values_or_sections(form, path, sections=is_section)
    if not (meant := same_meaning(name, here)):
        places = all_places(form, sections=is_section)
        similar = same_meaning(name, places)
        exactly = [place for place in places if place.rpartition(".")[2] == name]
        meant = list(dict.fromkeys([*similar[:1], *exactly])) if exactly else similar or suggest(name, here)
    if meant:
        return f"did you mean {one_of(meant[:3])}?"
    return absence(name) or f"known are {', '.join(field_names(form, path))}"


def _value_at(document: dict[str, Any], path: str) -> object:
    value: Any = document
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        value = value[name] if name else value[int(index)]
    return value


def _shown(value: object) -> str:
    """Return the value on one line, as TOML if it is short."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a section"
    return shorten(repr(value) if isinstance(value, str | list) else str(value))
