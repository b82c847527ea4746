"""What protocols say of themselves, and that everything which reads it finds all of it."""

from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import harness.planning.models
import peer.protocols
from harness.experiment.form import Experiment, section_of
from harness.planning.models import find_model
from peer.core.frames import Data
from peer.core.parts import NoParameters
from peer.protocols.description import Description, section_name
from peer.protocols.gossipsub.frames import Graft, Prune
from peer.protocols.registry import (
    DISSEMINATIONS,
    INTERESTS,
    MEMBERSHIPS,
    OVERLAYS,
    PROTOCOLS,
    background_kinds,
    copies_follow_links,
    copies_may_wait,
)
from peer.protocols.scribe.frames import ScribeHeartbeat, ScribeJoin, ScribeLeave
from peer.protocols.spidercast.frames import SpiderConnect, SpiderHeartbeat, SpiderLeave


def folders(package: object) -> set[str]:
    """The packages and modules inside a package."""
    [folder] = package.__path__
    return {path.stem for path in Path(folder).iterdir() if not path.name.startswith("_")}


SHARED = {"tman"}
"""What several protocols are made of, and nobody runs by itself."""


def test_every_package_is_registered():
    packages = folders(peer.protocols) - {"description", "registry", *SHARED}
    described = {
        package: [it for it in vars(import_module(f"peer.protocols.{package}")).values() if isinstance(it, Description)]
        for package in packages
    }
    assert all(described.values())
    listed = [protocol.name for its in described.values() for protocol in its]
    assert sorted(listed) == sorted(PROTOCOLS)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_its_own_parts_have_its_name_and_the_others_are_shared(protocol: Description):
    composition, own = protocol.composition, protocol.parts
    assert composition.overlay["name"] == protocol.name
    assert OVERLAYS[protocol.name] is own["overlay"]
    assert composition.dissemination["name"] in DISSEMINATIONS
    assert (composition.dissemination["name"] == protocol.name) == ("dissemination" in own)
    assert composition.membership["name"] in MEMBERSHIPS
    assert composition.interests in INTERESTS


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_its_parts_are_made_with_its_section(protocol: Description):
    experiment = msgspec.convert({"name": "x", "protocol": protocol.name}, Experiment)
    section = section_of(experiment, protocol.name)
    assert section == (None if protocol.parameters is None else protocol.parameters())
    for part in protocol.parts.values():
        msgspec.convert(msgspec.to_builtins(section) if section is not None else {}, part.Parameters)
        assert (part.Parameters is NoParameters) == (section is None)


def test_the_sections_of_an_experiment_are_the_protocols_in_their_order():
    fields = Experiment.__struct_fields__
    sections = [protocol.section for protocol in PROTOCOLS.values() if protocol.parameters is not None]
    begin = fields.index("underlay") + 1
    assert list(fields[begin : begin + len(sections)]) == sections
    assert fields[begin + len(sections)] == "membership"


@pytest.mark.parametrize("name", [*PROTOCOLS, "flood", "topic-flood", "partial", "cyclon", "newscast"])
def test_a_section_has_one_owner(name: str):
    owners = [it for it in (*PROTOCOLS, *DISSEMINATIONS, *MEMBERSHIPS) if section_name(it) == section_name(name)]
    assert set(owners) == {name}


def test_an_experiment_refuses_a_protocol_that_is_none_and_a_key_that_none_has():
    with pytest.raises(msgspec.ValidationError, match="protocol"):
        msgspec.convert({"name": "x", "protocol": "kademlia"}, Experiment)
    with pytest.raises(msgspec.ValidationError, match="unknown field `kademlia`"):
        msgspec.convert({"name": "x", "kademlia": {}}, Experiment)


def test_every_model_is_a_protocols_and_models_something():
    assert folders(harness.planning.models) <= {section_name(name) for name in PROTOCOLS}
    for module in folders(harness.planning.models):
        [name] = [name for name in PROTOCOLS if section_name(name) == module]
        assert find_model(name, "model_overlay") or find_model(name, "count_copies")


@pytest.mark.parametrize("name", DISSEMINATIONS)
def test_a_shared_dissemination_has_no_model_of_its_copies(name: str):
    assert name in PROTOCOLS or find_model(name, "count_copies") is None
    assert find_model(name, "count_nothing") is None


def test_heartbeats_are_sent_whoever_joins_or_leaves_and_replies_to_joins_and_messages_are_not():
    assert {ScribeHeartbeat.kind, SpiderHeartbeat.kind} <= background_kinds()
    caused = (Data, Graft, Prune, ScribeJoin, ScribeLeave, SpiderConnect, SpiderLeave)
    assert not background_kinds() & {frame.kind for frame in caused}


@pytest.mark.parametrize(
    ("dissemination", "interests", "several", "follow"),
    [
        ({"name": "flood", "ttl": 1}, "announced", False, True),
        ({"name": "flood", "ttl": 1}, "announced-only", False, False),
        ({"name": "flood", "ttl": 1}, "private", True, False),
        ({"name": "flood", "ttl": 0}, "private", True, True),
        ({"name": "topic-flood", "whole": False}, "private", True, True),
        ({"name": "topic-flood", "whole": True}, "private", False, True),
        ({"name": "topic-flood", "whole": True}, "announced", True, False),
        ({"name": "topic-flood"}, "private", True, True),
        ({"name": "gossipsub"}, "announced", False, False),
        ({"name": "scribe"}, "announced", False, False),
        ({"name": "of a later version"}, "announced", False, False),
        ({"name": "flood", "ttl": 1}, "of a later version", False, False),
    ],
)
def test_whether_copies_show_the_logical_links(dissemination: dict, interests: str, several: bool, follow: bool):
    assert copies_follow_links(dissemination, interests, several=several) is follow


@pytest.mark.parametrize(
    ("dissemination", "waits"),
    [
        ({"name": "notify-pull"}, True),
        ({"name": "notify-pull", "spreading": "pull"}, True),
        ({"name": "notify-pull", "spreading": "push"}, False),
        ({"name": "flood", "ttl": 1}, False),
        ({"name": "plumtree"}, True),
        ({"name": "gossipsub"}, False),
        ({"name": "implicit-groups"}, True),
        ({"name": "of a later version"}, False),
    ],
)
def test_whether_a_publisher_waits_for_other_nodes(dissemination: dict, waits: bool):
    assert copies_may_wait(dissemination) is waits
