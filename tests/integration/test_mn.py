"""``trellis mn``: commands run on hosts, whose packets take the delays of the topology."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPO = f"{ROOT / 'playbooks' / 'experiments' / 'topos.py'}:Tree,2,2"

ECHO = """
import json, socket, sys, time

service = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "serve":
    service.bind(("0.0.0.0", 9000))
    service.settimeout(30)
    while True:  # until nobody has asked for a while, or the namespace ends
        data, sender = service.recvfrom(100)
        service.sendto(data, sender)
service.settimeout(1)
took_ms = []
for number in range(100):  # packets before the server is up are not answered
    sent = b"%d" % number
    start = time.monotonic()
    service.sendto(sent, (sys.argv[1], 9000))
    try:
        while service.recv(100) != sent:
            pass
    except TimeoutError:
        continue
    took_ms.append((time.monotonic() - start) * 1000)
    if len(took_ms) == 4:
        break
print("RTT", json.dumps(took_ms))
"""


def look_around(folder: Path, *arguments: str, lines: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "harness.cli", "mn", *arguments]
    return subprocess.run(
        command,
        input="\n".join([*lines, "exit", ""]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.root
def test_packets_between_hosts_take_the_paths_of_the_topology(tmp_path: Path) -> None:
    echo = tmp_path / "echo.py"
    echo.write_text(ECHO)
    python = f"{shutil.which('python3')} -P {echo}"
    done = look_around(
        tmp_path,
        TOPO,
        lines=[
            f"h4 {python} serve &",
            f"h1 {python} h4",
            "h1 ip -o link",
            "h1 ip route",
            "s1 ls",
        ],
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    answers = [json.loads(line.partition("RTT ")[2]) for line in said.splitlines() if "RTT [" in line]
    assert [len(times) for times in answers] == [4], said
    assert min(answers[0]) >= 24  # 2 + 4 + 4 + 2 ms each way
    assert "wan0" in said
    assert "default via" not in said  # no route out
    assert "s1 is a router of the data plane" in said


@pytest.mark.root
def test_an_experiment_is_opened_too(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\ntestbed = "simulated"\n[underlay]\nhosts = 3\n[random]\ndegree = 2\n')
    done = look_around(tmp_path, str(file), "--set", "underlay.kind=uniform", lines=["nodes", "links"])
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "h1 h2 h3 wan" in said
    assert "h2<->wan (50 to 50 ms to other hosts)" in said


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    done = look_around(tmp_path, "nope.py:T", lines=[])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith("nope.py: No such file or directory\n")
