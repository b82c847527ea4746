"""Implementations of peers as files: what they set, which nodes they are, and how their files are fetched."""

import fcntl
import hashlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.deployment.agents import Site, build_agent_specs
from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.implementations import (
    FOLDER,
    assign_programs,
    find_implementation,
    known_names,
    with_programs,
)
from harness.experiment.loader import decode_experiment, load_experiment
from harness.experiment.sections.peer import MixSpec, PeerSpec
from harness.planning import make_plan
from harness.planning.needs import estimate_needs
from harness.planning.prediction import refuse_oversized
from harness.setup.fetching import FetchError, fetch
from metrics.reported import name_implementations

CONTENT = b"a program\n"
FILE = """
version = "1.2"
about = "A test."
command = ["{{files}}/program", "{{here}}", "{{node}}"]
memory_mib = {memory}
start_cpu_s = 0.5
says = {says}
transport = "{transport}"
fetch = [["sh", "-c", "echo {said} > program"]]

[sha256]
program = "{digest}"
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(
    folder: Path,
    name: str,
    *,
    says: str = "[]",
    memory: int = 40,
    said: str = "a program",
    transport: str = "tcp",
) -> str:
    digest = hashlib.sha256(CONTENT).hexdigest()
    path = folder / f"{name}.toml"
    path.write_text(FILE.format(says=says, memory=memory, said=said, digest=digest, transport=transport))
    return str(path)


def fetched(folder: Path, name: str, **options: Any) -> str:
    path = write(folder, name, **options)
    fetch(find_implementation(path, ""))
    return path


def experiment(**peer: Any) -> Experiment:
    underlay = {"kind": "world-cities", "hosts": 8}
    return decode_experiment({"name": "x", "protocol": "gossipsub", "underlay": underlay, "peer": peer})


@pytest.mark.parametrize("name", known_names())
def test_every_known_file_can_be_read_and_pins_what_it_fetches(name: str) -> None:
    found = find_implementation(name, "")
    words = [word for command in found.said.fetch for word in command]
    lists = [FOLDER / word.removeprefix("{here}/") for word in words if word.startswith("{here}/")]
    assert all(path.exists() for path in lists)
    assert "==" in " ".join([*words, *(path.read_text() for path in lists if path.suffix == ".txt")]) or "ci" in words
    assert all("{here}" not in word and "{files}" not in word for word in found.fill_in(found.said.command))


def test_an_implementation_sets_the_keys_of_a_program(tmp_path: Path) -> None:
    path = fetched(tmp_path, "one", says='["duplicate"]')
    peer = experiment(implementation=path).peer
    files = find_implementation(path, "").files
    assert peer.command == (f"{files}/program", str(tmp_path), "{node}")
    assert (peer.events, peer.says, peer.memory_mib, peer.start_cpu_s) == ("lines", ("duplicate",), 40, 0.5)
    assert name_implementations({"peer": {"programs": [{"implementation": "one", "version": "1.2"}]}}) == "one"


def test_a_file_may_say_how_much_processor_time_a_peer_needs(tmp_path: Path) -> None:
    path = Path(fetched(tmp_path, "one"))
    [silent] = experiment(implementation=str(path)).peer.programs
    assert (silent.idle_cpu_ms_per_s, silent.copy_cpu_us) == (None, None)
    with path.open("r+") as file:
        content = file.read()
        file.seek(0)
        file.write(content.replace("start_cpu_s", "idle_cpu_ms_per_s = 12.5\ncopy_cpu_us = 900\nstart_cpu_s"))
    fetch(find_implementation(str(path), ""))
    [told] = experiment(implementation=str(path)).peer.programs
    assert (told.idle_cpu_ms_per_s, told.copy_cpu_us) == (12.5, 900)


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"command": ["x"]}, "$.peer.command"),
        ({"says": ["link"]}, "$.peer.says"),
        ({"memory_mib": 3}, "$.peer.memory_mib"),
        ({"mix": [{"implementation": "one", "share": 1}]}, "$.peer.mix"),
    ],
)
def test_keys_that_contradict_an_implementation_are_refused(tmp_path: Path, keys: dict[str, Any], place: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        experiment(implementation=fetched(tmp_path, "one"), **keys)
    assert raised.value.path == place


def test_programs_that_cannot_connect_to_each_other_are_refused(tmp_path: Path) -> None:
    tcp, udp, other = (
        fetched(tmp_path, name, transport=name[:3], said="a program") for name in ("tcp", "udp", "udp-too")
    )
    with pytest.raises(ExperimentError, match=r"the same transport, got tcp \(tcp\), udp \(udp\)") as raised:
        experiment(mix=[{"implementation": tcp, "share": 1}, {"implementation": udp, "share": 1}])
    assert raised.value.path == "$.peer.mix"
    mixed = experiment(mix=[{"implementation": udp, "share": 1}, {"implementation": other, "share": 1}])
    assert [program.transport for program in mixed.peer.programs] == ["udp", "udp"]


def test_what_is_not_there_is_refused_with_the_command_that_gets_it(tmp_path: Path) -> None:
    path = write(tmp_path, "one")
    with pytest.raises(ExperimentError, match=f"one has not been fetched; try: trellis fetch {path}"):
        experiment(implementation=path)
    with pytest.raises(ExperimentError, match="expected one of go-libp2p, "):
        experiment(implementation="no-such")
    found = find_implementation(path, "")
    fetch(found)
    (found.files / "program").write_bytes(b"another program\n")
    with pytest.raises(ExperimentError, match="is not the file that one names; try: trellis fetch"):
        experiment(implementation=path)
    fetch(found)
    assert experiment(implementation=path).peer.command is not None


def test_a_path_is_relative_to_the_experiment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a mix. A file of the same name in the working directory is another one."""
    folder, elsewhere = tmp_path / "experiments", tmp_path / "elsewhere"
    for each in (folder / "own", elsewhere / "own"):
        each.mkdir(parents=True)
    fetched(folder / "own", "one", memory=70)
    fetched(elsewhere / "own", "one", memory=30)
    monkeypatch.chdir(elsewhere)
    file = folder / "x.toml"
    head = 'name = "x"\nprotocol = "gossipsub"\nunderlay = { kind = "world-cities", hosts = 8 }\n'
    for keys in ('implementation = "own/one.toml"', 'mix = [{ implementation = "own/one.toml", share = 1 }]'):
        file.write_text(f"{head}[peer]\n{keys}\n")
        assert load_experiment(file).peer.memory_mib == 70
        assert load_experiment(Path("../experiments/x.toml")).peer.memory_mib == 70
    file.write_text(f'{head}[peer]\nimplementation = "own/two.toml"\n')
    with pytest.raises(ExperimentError, match=f"{folder}/own/two.toml is not there"):
        load_experiment(file)


def test_a_file_beside_it_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "lacking"))
    path.write_text(path.read_text().replace('"sh",', '"sh", "{here}/build.sh",'))
    with pytest.raises(ExperimentError, match=r"a command names .*build\.sh: No such file"):
        find_implementation(str(path), "$.peer.implementation")


def test_another_driver_is_another_implementation_with_the_same_files(tmp_path: Path) -> None:
    path, driver = Path(write(tmp_path, "driven")), tmp_path / "driver.py"
    path.write_text(path.read_text().replace('"{here}"', '"{here}/driver.py"'))
    driver.write_text("one")
    one = find_implementation(str(path), "")
    driver.write_text("another")
    other = find_implementation(str(path), "")
    assert one.sha256 != other.sha256
    assert one.files == other.files


def test_what_is_fetched_must_have_its_hash_and_leaves_nothing_otherwise(tmp_path: Path) -> None:
    found = find_implementation(write(tmp_path, "one", said="something else"), "")
    with pytest.raises(FetchError, match="program is not the file that"):
        fetch(found)
    assert not found.files.exists() and not found.is_there


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "one"))
    path.write_text(path.read_text().replace("echo a program > program", "echo no network >&2; exit 3"))
    with pytest.raises(FetchError, match="failed with status 3: no network"):
        fetch(find_implementation(str(path), ""))


def test_of_two_that_fetch_at_once_one_waits_and_keeps_what_the_other_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, runs = tmp_path / "gate", tmp_path / "runs"
    path = Path(write(tmp_path, "one"))
    held = f"echo >> {runs}; while [ ! -e {gate} ]; do sleep 0.02; done; echo a program > program"
    path.write_text(path.read_text().replace("echo a program > program", held))
    found = find_implementation(str(path), "")
    asked = threading.Semaphore(0)
    flock = fcntl.flock

    def ask(file: Any, operation: int) -> None:
        asked.release()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", ask)
    with ThreadPoolExecutor(2) as threads:
        try:
            fetches = [threads.submit(fetch, found) for _ in range(2)]
            both = asked.acquire(timeout=300) and asked.acquire(timeout=60)
        finally:
            gate.touch()
        assert both
        assert [each.result() for each in fetches] == [found.files] * 2
    assert runs.read_text() == "\n"
    assert (found.files / "program").read_bytes() == CONTENT


def test_one_that_fails_lets_the_next_one_fetch(tmp_path: Path) -> None:
    path, net = Path(write(tmp_path, "one")), tmp_path / "net"
    path.write_text(path.read_text().replace("echo a", f"test -e {net} && echo a"))
    found = find_implementation(str(path), "")
    with pytest.raises(FetchError):
        fetch(found)
    net.touch()
    assert fetch(found) == found.files
    assert found.is_there


def test_another_file_of_the_same_name_is_fetched_apart(tmp_path: Path) -> None:
    one = find_implementation(write(tmp_path, "one"), "").files
    assert find_implementation(write(tmp_path, "one", memory=41), "").files != one


def test_a_mix_reports_what_all_its_implementations_report(tmp_path: Path) -> None:
    paths = [
        fetched(tmp_path, "one", says='["duplicate", "link"]', memory=20),
        fetched(tmp_path, "two", says='["link"]'),
    ]
    found = experiment(
        mix=[{"implementation": path, "share": share} for path, share in zip(paths, (3, 1), strict=True)]
    )
    assert (found.peer.says, found.peer.memory_mib) == (("link",), 25)
    sites = [Site(node, "m", ("192.0.2.1", 9000 + node), None) for node in range(8)]
    [agent] = build_agent_specs(found, sites).values()
    assert Counter(agent.assigned) == {0: 6, 1: 2}
    assert {agent.program_of(node).says for node in range(8)} == {("duplicate", "link"), ("link",)}
    plan = make_plan(found, tmp_path / "x.toml").plan
    names = [place.implementation for place in plan.placement]
    assert names == [("one", "two")[number] for number in agent.assigned]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 60), st.integers(0, 5), st.data())
def test_shares_are_divided_and_named_nodes_stay(shares: list[int], nodes: int, seed: int, data: st.DataObject) -> None:
    own = data.draw(st.sets(st.integers(0, nodes - 1)))
    mix = [MixSpec(str(number), share=float(share)) for number, share in enumerate(shares)]
    if own:
        mix.append(MixSpec("named", nodes=tuple(own)))
    found = assign_programs(PeerSpec(mix=tuple(mix)), nodes, seed)
    counts = Counter(found)
    assert {node for node, number in enumerate(found) if number == len(shares)} == own
    for number, share in enumerate(shares):
        exact = (nodes - len(own)) * share / sum(shares)
        assert exact - 1 < counts[number] < exact + 1
    assert found == assign_programs(PeerSpec(mix=tuple(mix)), nodes, seed)


def test_the_seed_draws_which_nodes_they_are() -> None:
    peer = PeerSpec(mix=(MixSpec("a", share=1), MixSpec("b", share=1)))
    assert len({assign_programs(peer, 20, seed) for seed in range(5)}) == 5


@pytest.mark.parametrize(
    ("mix", "problem"),
    [
        ([MixSpec("a", nodes=(0, 1))], "node 2 has no implementation"),
        ([MixSpec("a", share=1), MixSpec("b", nodes=(9,))], "expected nodes from 0 to 7, got 9"),
    ],
)
def test_nodes_that_are_missing_or_too_many_are_refused(mix: list[MixSpec], problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        assign_programs(PeerSpec(mix=tuple(mix)), 8, 1)


@pytest.mark.parametrize(
    ("mix", "problem"),
    [
        ([MixSpec("a")], "expected either a share above 0 or nodes"),
        ([MixSpec("a", share=1, nodes=(1,))], "expected either a share above 0 or nodes"),
        ([MixSpec("a", nodes=(1,)), MixSpec("b", nodes=(1, 2))], "a node has two implementations"),
    ],
)
def test_a_mix_gives_each_node_one_implementation(mix: list[MixSpec], problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        with_programs(PeerSpec(mix=tuple(mix)), Path())


def test_the_plan_counts_memory_and_start_of_programs(tmp_path: Path) -> None:
    found = experiment(implementation=fetched(tmp_path, "one"))
    plain = experiment()
    needs, without = (estimate_needs(each, 8) for each in (found, plain))
    assert needs.capacity.memory_mib - without.capacity.memory_mib == pytest.approx(8 * 40, abs=0.2)
    assert needs.wall_s is not None and without.wall_s is not None
    assert needs.wall_s - without.wall_s == pytest.approx(8 * 0.5)
    slow = experiment(command=["x"], events="lines", start_cpu_s=3600)
    with pytest.raises(ExperimentError, match=r"programs need .* s to start here, and must be ready within 60 s"):
        refuse_oversized(slow, 8)
    large = experiment(command=["x"], events="lines", memory_mib=1e6)
    with pytest.raises(ExperimentError, match="MiB of memory, this machine has"):
        refuse_oversized(large, 8)
