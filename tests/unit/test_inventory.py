from pathlib import Path

import pytest

from harness.errors import ExperimentError
from harness.experiment.inventory import inventory_text, load_inventory, save_inventory, saved_inventory

MACHINE = 'name = "{}"\nhost = "192.0.2.{}"\nkey = "keys/id"\nknown_hosts = "known_hosts"\n'


def write(folder: Path, *extra: str) -> Path:
    rows = [f"[[machines]]\n{MACHINE.format(f'm{i}', i + 1)}{text}\n" for i, text in enumerate(extra)]
    path = folder / "inventory.toml"
    path.write_text("\n".join(rows))
    return path


def test_hosts_are_dealt_in_turn_and_differ_by_port(tmp_path: Path):
    inventory = load_inventory(write(tmp_path, "hosts = 3", "", "hosts = 2"))
    slots = inventory.slots(6)
    assert [slot.machine for slot in slots] == ["m0", "m1", "m2", "m0", "m2", "m0"]
    assert [slot.listen for slot in slots if slot.machine == "m0"] == [("192.0.2.1", 9000 + i) for i in range(3)]
    assert {slot.metrics for slot in slots} == {None}, "nothing is served where nobody has said for whom"
    assert len(inventory.slots(2)) == 2


def test_every_address_is_a_seat_at_the_standard_ports(tmp_path: Path):
    slots = load_inventory(write(tmp_path, 'addresses = ["198.51.100.1", "198.51.100.2"]')).slots(2)
    assert [slot.listen for slot in slots] == [("198.51.100.1", 9000), ("198.51.100.2", 9000)]


def test_metrics_are_served_at_the_address_for_them_and_nowhere_else(tmp_path: Path):
    inventory = load_inventory(
        write(tmp_path, 'hosts = 2\nmetrics_address = "10.9.0.1"', 'addresses = ["198.51.100.1"]')
    )
    assert [slot.metrics for slot in inventory.slots(3)] == [("10.9.0.1", 9100), None, ("10.9.0.1", 9101)]


def test_the_text_of_an_inventory_is_read_as_that_inventory(tmp_path: Path):
    inventory = load_inventory(write(tmp_path, "hosts = 2\nown_clock = false", 'addresses = ["10.9.0.1", "10.9.0.2"]'))
    (tmp_path / "again.toml").write_text(inventory_text(inventory))
    assert load_inventory(tmp_path / "again.toml") == inventory


def test_too_few_places_are_refused(tmp_path: Path):
    with pytest.raises(ExperimentError, match=r"at most 3 hosts .*, got 4"):
        load_inventory(write(tmp_path, "hosts = 2", "")).slots(4)


def test_paths_are_relative_to_the_file_and_survive_saving(tmp_path: Path):
    inventory = load_inventory(write(tmp_path, ""))
    assert inventory.machines[0].key == str(tmp_path / "keys/id")
    save_inventory(inventory, tmp_path)
    assert saved_inventory(tmp_path) == inventory


@pytest.mark.parametrize(
    ("extra", "place"),
    [
        (["hosts = 0"], r"\$\.machines\[0\]\.hosts"),
        (["hosts = 101"], r"\$\.machines\[0\]\.hosts"),
        (["", "port = 70000"], r"\$\.machines\[1\]\.port"),
        (["colour = 3"], r"\$\.machines\[0\]"),
        (['work = "relative"'], r"\$\.machines\[0\]\.work"),
        (['work = "/a b"'], r"\$\.machines\[0\]\.work"),
        (['work = "/home/me\\n"'], r"\$\.machines\[0\]\.work"),  # rm -r would get two words
        (['addresses = ["192.0.2.9", "192.0.2.9"]'], r"\$\.machines\[0\]\.addresses"),
        (['hosts = 2\naddresses = ["192.0.2.9"]'], r"\$\.machines\[0\]\.addresses"),
        (['address = "192.0.2.9"', 'address = "192.0.2.9"'], r"\$\.machines\[1\]\.addresses"),
        (['metrics_address = "10.9.0.1"'] * 2, r"\$\.machines\[1\]\.metrics_address"),
        (
            [f"addresses = {[f'192.0.2.{i}' for i in range(101)]}\nmetrics_address = '10.9.0.1'"],
            r"\$\.machines\[0\]\.metr",
        ),
        (
            ['addresses = ["192.0.2.9", "192.0.2.8:9000"]'],
            r"\$\.machines\[0\]\.addresses\[1\]: .*got '192.0.2.8:9000'$",
        ),
        (['address = "a b"'], r"\$\.machines\[0\]\.address: expected a host name or an address, got 'a b'$"),
    ],
)
def test_faults_name_the_file_and_the_place(tmp_path: Path, extra: list[str], place: str):
    with pytest.raises(ExperimentError, match=rf"inventory\.toml: {place}"):
        load_inventory(write(tmp_path, *extra))


@pytest.mark.parametrize(
    ("host", "hint"),
    [
        ("root@example.org", "set user = 'root' instead"),
        ("example.org:2222", "set port = 2222 instead"),
        ("me@192.0.2.1:22", "set user = 'me' and port = 22 instead"),
        ("[2001:db8::1]:22", "set port = 22 instead"),
        ("ssh://example.org", "got 'ssh://example.org'$"),
        ("[2001:db8::1]", "expected a host name or an address"),
        ("example.org\\n", "expected a host name or an address"),
        ("-oProxyCommand=x", "expected a host name or an address"),
    ],
)
def test_a_host_that_has_other_parts_of_an_endpoint_is_refused(tmp_path: Path, host: str, hint: str):
    path = write(tmp_path, "")
    path.write_text(path.read_text().replace("192.0.2.1", host))
    with pytest.raises(ExperimentError, match=rf"inventory\.toml: \$\.machines\[0\]\.host: .*{hint}"):
        load_inventory(path)


@pytest.mark.parametrize("host", ["h", "node-1.example.org", "a_b", "192.0.2.1", "2001:db8::1", "fe80::1%eth0"])
def test_host_names_and_addresses_are_taken(tmp_path: Path, host: str):
    path = write(tmp_path, "")
    path.write_text(path.read_text().replace("192.0.2.1", host))
    assert load_inventory(path).machines[0].host == host


def test_an_empty_and_a_missing_file_and_a_double_name(tmp_path: Path):
    path = write(tmp_path)
    with pytest.raises(ExperimentError, match="machines"):
        load_inventory(path)
    with pytest.raises(ExperimentError, match="No such file"):
        load_inventory(tmp_path / "nothing.toml")
    with pytest.raises(ExperimentError, match=r"inventory\.toml:\d+:1: invalid statement"):
        load_inventory(write(tmp_path, "= 3"))
    path = write(tmp_path, "", "")
    path.write_text(path.read_text().replace('"m1"', '"m0"'))
    with pytest.raises(ExperimentError, match=r"machines\[1\]\.name"):
        load_inventory(path)
