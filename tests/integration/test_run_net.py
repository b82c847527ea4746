"""The network of a run: a Mininet network, booted and attached to the data plane."""

import json
import sys
from pathlib import Path

import pytest

from harness.experiment.loader import load_experiment
from harness.machine import sandbox
from harness.planning import make_plan, write_plan

TOPOS = Path(__file__).parents[2] / "playbooks" / "experiments" / "topos.py"

PROGRAM = """
import json, sys
from pathlib import Path
from mininet.net import Mininet
from harness.planning import read_plan
from harness.stages import manifest
from harness.testbeds.emulated.testbed import EmulatedTestbed
from peer.runtime.clock import UNDILATED

run_dir = Path(sys.argv[1])
testbed = EmulatedTestbed(read_plan(run_dir), run_dir, manifest.epoch_offset_ns(), UNDILATED)
testbed.boot()
net = testbed.net
seen = {
    "mininet": isinstance(net, Mininet),
    "nodes": list(net),
    "links": [str(link) for link in net.links],
    "addresses": [host.IP() for host in net.hosts],
    "devices": [json.loads(host.cmd("ip -json -4 address show dev wan0")) for host in net.hosts],
    "places": [site.netns == host.netns for site, host in zip(testbed.sites(), net.hosts, strict=True)],
}
testbed.close()
seen["ended"] = [host.shell is None for host in net.hosts]
(run_dir / "seen.json").write_text(json.dumps(seen))
"""


@pytest.mark.root
def test_a_run_boots_a_mininet_network(tmp_path: Path) -> None:
    file, run_dir = tmp_path / "x.toml", tmp_path / "run"
    underlay = f'underlay = {{ kind = "mininet", topo = "{TOPOS}:Dumbbell,1" }}\n'
    file.write_text(f'name = "x"\nprotocol = "complete"\n{underlay}')
    write_plan(make_plan(load_experiment(file), file), run_dir)
    assert sandbox.run([sys.executable, "-c", PROGRAM, str(run_dir)], keep=[run_dir]) == 0
    seen = json.loads((run_dir / "seen.json").read_text())
    assert seen["mininet"]
    assert seen["nodes"] == ["l1", "r1", "s1", "s2"]
    assert seen["links"] == ["l1<->s1", "r1<->s2", "s1<->s2"]
    assert seen["addresses"] == ["10.0.0.1", "10.0.0.2"]
    assert [device["addr_info"][0]["local"] for (device,) in seen["devices"]] == seen["addresses"]
    assert seen["places"] == seen["ended"] == [True, True]
