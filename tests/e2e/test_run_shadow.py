"""An experiment of Shadow as it is: a web server in Python and clients with curl, like its first example."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.e2e.run_experiment import QUICKLY, Finished, finish, speaks_of_load, start

pytestmark = [pytest.mark.root, pytest.mark.slow]

EXPERIMENT = """
general:
  stop_time: 20s
  model_unblocked_syscall_latency: true
network:
  graph:
    type: gml
    inline: |
      graph [
        node [ id 0 label "here" host_bandwidth_up "20 Mbit" host_bandwidth_down "20 Mbit" ]
        node [ id 1 label "there" host_bandwidth_up "10 Mbit" host_bandwidth_down "10 Mbit" ]
        edge [ source 0 target 0 latency "5 ms" packet_loss 0.0 ]
        edge [ source 0 target 1 latency "40 ms" packet_loss 0.0 ]
        edge [ source 1 target 1 latency "5 ms" packet_loss 0.0 ]
      ]
hosts:
  web:
    network_node_id: 0
    processes:
    - path: python3
      args: -m http.server 80
      start_time: 1s
      expected_final_state: running
  # curl tries again for as long as a busy machine may need to start the server
  client1: &client
    network_node_id: 1
    processes:
    - path: curl
      args: --silent --show-error --retry 17 --retry-delay 1 --retry-connrefused web
      start_time: 2s
    - path: sh
      args: -c 'hostname; exit 3'
      start_time: 2s
      expected_final_state: {exited: EXIT}
    - path: sleep
      args: "1000"
      shutdown_time: 3s
      expected_final_state: {signaled: SIGTERM}
  client2: *client
"""


def run(folder: Path, status: int) -> Finished:
    path, out = folder / "shadow.yaml", folder / "run"
    path.write_text(EXPERIMENT.replace("EXIT", str(status)))
    return Finished(out, finish(start("run", path, *QUICKLY, "--out", out, "--json")))


def ends(done: Finished, host: str) -> dict[str, dict[str, Any]]:
    lines = (done.run_dir / f"hosts/{host}/processes.jsonl").read_text().splitlines()
    return {line["process"].split(".")[0]: line for line in map(json.loads, lines)}


def test_a_file_of_shadow_runs_as_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, 3)
    reasons = [reason for reason in done.summary["reasons"] if not speaks_of_load(reason)]
    assert [reason for reason in reasons if "access rate" not in reason] == []
    judged = dict.fromkeys(("network", "machine", "packets"), "judged")
    assert done.summary["scope"] == judged | dict.fromkeys(("frames", "deliveries"), "not applicable")
    for host in ("client1", "client2"):
        folder = done.run_dir / "hosts" / host
        assert "Directory listing for /" in next(folder.glob("curl.*.stdout")).read_text()
        assert next(folder.glob("sh.*.stdout")).read_text() == f"{host}\n"
        assert {name: end["found"] for name, end in ends(done, host).items()} == {
            "curl": "exited 0",
            "sh": "exited 3",
            "sleep": "signalled SIGTERM",
        }
    assert [end["found"] for end in ends(done, "web").values()] == ["running"]
    server = next((done.run_dir / "hosts/web").glob("*.stderr")).read_text()
    assert server.count('"GET / HTTP/1.1" 200') == 2
    conns = pq.read_table(done.run_dir / "tables/conns.parquet").to_pylist()
    served = [row for row in conns if row["id_resp_p"] == 80 and row["orig_bytes"]]
    assert len(served) == 2
    pairs = {(row["src_node"], row["dst_node"]): row for row in done.table("pairs")}
    asked_ms = {pair: pairs[pair]["asked_delay_ms"] for pair in ((0, 1), (0, 2), (2, 0))}
    assert asked_ms == {(0, 1): 5, (0, 2): 40, (2, 0): 40}
    [rates] = [check for check in done.summary["checks"] if check["name"] == "access_rate"]
    assert rates["outcome"] in ("passed", "failed")
    assert rates["tested"] > 20
    headline = done.summary["headline"]
    assert {headline[name] for name in ("messages_published", "delivery_ratio", "degree_mean", "topic_components")} == {
        None
    }


@pytest.mark.long
def test_a_process_in_another_state_makes_the_run_invalid(tmp_path: Path) -> None:
    done = run(tmp_path, 4)
    assert done.summary["verdict"] == "invalid"
    reasons = [reason for reason in done.summary["reasons"] if "was to be" in reason]
    assert len(reasons) == 2
    assert "but was 'exited 3'" in reasons[0]
