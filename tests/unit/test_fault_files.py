"""Faults in experiment files: groups by name, and one line with the place for what does not fit."""

from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.experiment.form import Experiment
from harness.experiment.loader import decode
from harness.experiment.sections.faults import GroupSpec
from harness.planning.groups import Groups, spell
from topologies.geography import CONTINENTS, find_continents, world_cities
from topologies.model import Host

CITIES = (
    Host("Berlin", "Berlin", "DE", 52.5, 13.4),
    Host("Berlin 2", "Berlin", "DE", 52.5, 13.4),
    Host("São Paulo", "São Paulo", "BR", -23.5, -46.6),
    Host("Cairo", "Cairo", "EG", 30.0, 31.2),
    Host("nowhere", "nowhere"),
)


def groups_of(sections: dict[str, Any]) -> Groups:
    return Groups(decode({"name": "x", "groups": sections}, Experiment), CITIES)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("all", {0, 1, 2, 3, 4}),
        ("europe", {0, 1}),
        ("South America", {2}),
        ("africa", {3}),
        ("berlin", {0, 1}),
        ("Sao Paulo", {2}),
        ("sao-paulo", {2}),
        ("nowhere", {4}),
        ("named", {3, 4}),
        ("cairo", {0}),
    ],
)
def test_a_group_is_a_section_a_continent_or_a_city(name: str, nodes: set[int]):
    groups = groups_of({"named": {"nodes": [4, 3]}, "cairo": {"nodes": [0]}})
    assert groups.find(name, "$") == nodes


@pytest.mark.parametrize(
    ("section", "nodes"),
    [({"region": "europe"}, {0, 1}), ({"city": "são paulo"}, {2}), ({"share": 1}, {0, 1, 2, 3, 4})],
)
def test_a_section_names_a_continent_a_city_or_a_share(section: dict[str, Any], nodes: set[int]):
    assert groups_of({"g": section}).find("g", "$") == nodes


@pytest.mark.parametrize(("section", "count"), [({"share": 0.5}, 2), ({"share": 0.001}, 1), ({"number": 3}, 3)])
def test_drawn_groups_have_their_size_and_depend_on_their_name(section: dict[str, Any], count: int):
    groups = groups_of({f"g{number}": section for number in range(9)})
    drawn = [groups.find(f"g{number}", "$") for number in range(9)]
    assert {len(nodes) for nodes in drawn} == {count}
    assert len(set(drawn)) > 1
    assert groups.find("g0", "$.elsewhere") == drawn[0]


def test_every_section_takes_the_keys_of_a_group():
    assert set(GroupSpec.__struct_fields__) == {"region", "city", "nodes", "share", "number"}


def test_the_continent_of_a_city_is_its_own():
    cities = world_cities()
    found = find_continents([city.latitude for city in cities], [city.longitude for city in cities])
    assert found == [CONTINENTS[city.continent] for city in cities]


def test_names_are_spelled_alike():
    assert [spell(name) for name in ("São Paulo", "NORTH  America", "St. John's", "東京")] == [
        "sao-paulo",
        "north-america",
        "st-john-s",
        "東京",
    ]


CUT = 'testbed = "simulated"\n[[faults]]\nat_s = 1\ncut = ["all", "all"]\n'
FILES = {
    "no_verb": (
        "[[faults]]\nat_s = 1\n",
        "$.faults[0]: expected one verb of partition, isolate, cut, sever, degrade, flap, pause, got none",
    ),
    "two_verbs": (
        f"{CUT}pause = 1\n",
        "$.faults[0]: expected one verb of partition, isolate, cut, sever, degrade, flap, pause, got cut and pause",
    ),
    "other_verbs_key": (f'{CUT}between = ["all", "all"]\n', "$.faults[0].between: cut does not use it"),
    "pause_direction": (
        '[[faults]]\nat_s = 1\npause = 1\ndirection = "to"\n',
        "$.faults[0].direction: pause does not use it",
    ),
    "one_group": (
        '[[faults]]\nat_s = 1\npartition = ["all"]\n',
        "$.faults[0].partition: expected at least 2 groups, got 1",
    ),
    "one_way_of_three": (
        '[[faults]]\nat_s = 1\npartition = [[0], [1], "rest"]\ndirection = "to"\n',
        '$.faults[0].direction: expected "both", since there are 3 groups, got "to"',
    ),
    "flap_of_none": (
        "[[faults]]\nat_s = 1\nflap = {period_s = 2, down_s = 1}\n",
        "$.faults[0].nodes: missing: flap needs it",
    ),
    "always_down": (
        "[[faults]]\nat_s = 1\nflap = {period_s = 2, down_s = 2}\nnodes = 1\n",
        "$.faults[0].flap.down_s: expected less than period_s = 2, got 2",
    ),
    "no_worse": (
        "[[faults]]\nat_s = 1\ndegrade = {}\n",
        "$.faults[0].degrade: expected at least one value that changes something",
    ),
    "slow": (
        "[[faults]]\nat_s = 1\ndegrade = {rate_mbit = 0.0001}\n",
        "$.faults[0].degrade.rate_mbit: expected 0 or at least 0.001, got 0.0001",
    ),
    "overtaken_in_no_time": (
        'testbed = "emulated"\n[[faults]]\nat_s = 1\ndegrade = {reorder_ratio = 0.1}\n',
        "$.faults[0].degrade.reorder_ms: reorder_ratio and reorder_ms need each other: expected more than 0",
    ),
    "nothing_overtaken": (
        'testbed = "emulated"\n[[faults]]\nat_s = 1\ndegrade = {reorder_ms = 5}\n',
        "$.faults[0].degrade.reorder_ratio: reorder_ratio and reorder_ms need each other: expected more than 0",
    ),
    "rate_of_pairs": (
        "[[faults]]\nat_s = 1\ndegrade = {rate_mbit = 1}\nbetween = [[0], [1]]\n",
        "$.faults[0].degrade.rate_mbit: an access link is shared by all pairs of a host, so the second group of "
        'between must be "all"',
    ),
    "group_of_nothing": (
        "[groups.g]\n",
        "$.groups.g: expected one key of region, city, nodes, share, number, got none",
    ),
    "group_of_two": (
        "[groups.g]\nshare = 0.1\nnumber = 3\n",
        "$.groups.g: expected one key of region, city, nodes, share, number, got share and number",
    ),
    "group_called_rest": (
        "[groups.rest]\nnumber = 3\n",
        "$.groups.rest: this name has a meaning of its own in every experiment",
    ),
    "group_key": ('[groups."a b"]\nshar = 3\n', "$.groups.'a b'.shar: unknown field; did you mean share?"),
    "group_value": ("[groups]\ng = 3\n", "$.groups.g: expected a section, got 3"),
    "region": (
        '[groups]\ng = {region = "erope"}\n',
        '$.groups.g.region: expected "africa", "asia", "europe", "north-america", "oceania" or "south-america", '
        "got 'erope'; did you mean \"europe\"?",
    ),
    "remote": (
        'testbed = "remote"\ninventory = "x.toml"\n[[faults]]\nat_s = 1\ncut = ["all", "all"]\n',
        '$.faults[0].cut: a run with testbed = "remote" changes nothing in a real network',
    ),
    "simulated_copies": (
        "[[faults]]\nat_s = 1\ndegrade = {loss_ratio = 0.1, duplicate_ratio = 0.1}\n",
        '$.faults[0].degrade.duplicate_ratio: testbed = "simulated" carries frames over connections, which deliver '
        "each byte once and in order",
    ),
    "copies_by_the_kernel": (
        'testbed = "emulated"\nplane = "kernel"\n[[faults]]\nat_s = 1\ndegrade = {duplicate_ratio = 0.1}\n',
        '$.faults[0].degrade: plane = "kernel" does not change its network during a run',
    ),
    "unknown_group": (
        '[[faults]]\nat_s = 1\nisolate = "erope"\n',
        "$.faults[0].isolate: no group, continent or city is called 'erope'; did you mean europe?",
    ),
    "rest_alone": (
        '[[faults]]\nat_s = 1\nisolate = "rest"\n',
        "$.faults[0].isolate: no group, continent or city is called 'rest'",
    ),
    "rest_of_all": (
        '[[faults]]\nat_s = 1\npartition = ["all", "rest"]\n',
        "$.faults[0].partition: no node is left for the rest",
    ),
    "everyone_isolated": (
        '[[faults]]\nat_s = 1\nisolate = "all"\n',
        "$.faults[0].isolate: expected at least one node outside the group, got none",
    ),
    "groups_overlap": (
        "[[faults]]\nat_s = 1\npartition = [[0, 1], [1, 2]]\n",
        "$.faults[0].partition[1]: expected no node of an earlier group, got node 1",
    ),
    "node_unknown": (
        "[[faults]]\nat_s = 1\npause = [20]\n",
        "$.faults[0].pause: expected nodes from 0 to 19, got [20]",
    ),
    "no_nodes": ("[[faults]]\nat_s = 1\npause = []\n", "$.faults[0].pause: expected at least one node, got []"),
    "too_many": ("[[faults]]\nat_s = 1\npause = 21\n", "$.faults[0].pause: expected at most 20 nodes, got 21"),
    "city_unknown": (
        '[groups]\ng = {city = "atlantis"}\n[[faults]]\nat_s = 1\npause = "g"\n',
        "$.groups.g.city: no host of the underlay is in 'atlantis'",
    ),
    "too_late": (
        "[[faults]]\nat_s = 99\npause = 1\n",
        "$.faults[0].at_s: expected an instant of the run, -5 to 33 s, got 99",
    ),
    "too_often": (
        "[[faults]]\nat_s = 0\nflap = {period_s = 0.002, down_s = 0.001}\nnodes = 1\n",
        "$.faults[0]: the faults make more than 10,000 changes",
    ),
}


@pytest.mark.parametrize(("text", "problem"), FILES.values(), ids=FILES)
def test_what_does_not_fit_is_one_line_with_its_place(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "x.toml"
    head = 'name = "x"\n' + ("" if "testbed" in text else 'testbed = "simulated"\n')
    file.write_text(head + text, encoding="utf-8")
    assert main(["plan", str(file)]) == 2
    assert capsys.readouterr().err == f"trellis plan: {file}: {problem}\n"


def test_a_plan_says_what_every_fault_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "x.toml"
    file.write_text(
        'name = "x"\ntestbed = "simulated"\n[underlay]\nkind = "uniform"\nhosts = 4\n[random]\ndegree = 2\n'
        '[[faults]]\nat_s = 1\nfor_s = 2\npartition = [[0], "rest"]\n'
        "[[faults]]\nat_s = 2\ndegrade = {rate_mbit = 1, loss_ratio = 0.5}\n"
        "[[faults]]\nat_s = 0\nfor_s = 9\nflap = {period_s = 2, down_s = 1}\nnodes = [3]\n"
        "[[faults]]\nat_s = 3\npause = [1, 2]\n",
        encoding="utf-8",
    )
    assert main(["plan", str(file), "--out", str(tmp_path / "run")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fault ")]
    assert lines == [
        "fault 0      partition from 1 s to 3 s: 6 of 12 directed pairs",
        "fault 1      degrade from 2 s to the end: 12 of 12 directed pairs, 8 of 8 access links",
        "fault 2      flap from 0 s to 9 s: 6 of 12 directed pairs",
        "fault 3      pause from 3 s to the end: 2 of 4 peers",
    ]
    assert (tmp_path / "run" / "changes.jsonl").read_text(encoding="utf-8").splitlines()[0] == (
        '{"from_ns":1000000000,"fault":0,"to_ns":3000000000,"sources":[0],"destinations":[1,2,3],"is_cut":true}'
    )


def test_an_experiment_without_faults_has_no_trace_of_them_in_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\ntestbed = "simulated"\n[groups]\ng = {number = 3}\n', encoding="utf-8")
    assert main(["plan", str(file), "--out", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "run" / "changes.jsonl").exists()
    assert "faults" not in capsys.readouterr().out
