"""The program that captures on a machine, with stand-ins for tcpdump and dumpcap."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.testbeds import remote

RECORDER = Path(remote.__file__).with_name("recorder.py")

CAPTURES = """#!/bin/sh
echo "$@" > {folder}/arguments
trap 'echo "{words}" >&2; exit {status}' INT
printf packets
echo "{name}: data link type LINUX_SLL2" >&2
echo "{ready}" >&2
while :; do sleep 0.01; done
"""

TCPDUMP = "9 packets captured\n12 packets received by filter\n3 packets dropped by kernel"
DUMPCAP = (
    "Packets captured: 9\nPackets received/dropped on interface 'any': 9/4 (pcap:4/dumpcap:0/flushed:0/ps_ifdrop:0)"
)


REFUSES = """#!/bin/sh
echo "any: You don't have permission" >&2
exit 1
"""


def stand_in(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)


def capturing(folder: Path, name: str, words: str, status: int = 0) -> None:
    ready = {"tcpdump": "tcpdump: listening on any", "dumpcap": "Capturing on 'any'"}[name]
    stand_in(folder, name, CAPTURES.format(folder=folder, name=name, ready=ready, words=words, status=status))


def record(folder: Path) -> subprocess.CompletedProcess[str]:
    """Start the recorder, wait until it captures, and end it."""
    command = [sys.executable, str(RECORDER), str(folder / "capture.pcap"), "96", "tcp port 9000"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {"PATH": f"{folder}:/bin"}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        first = process.stdout.readline()
        rest, errors = process.communicate(timeout=300)
    return subprocess.CompletedProcess(command, process.returncode, first + rest, errors)


@pytest.mark.parametrize(("name", "words", "dropped"), [("tcpdump", TCPDUMP, 3), ("dumpcap", DUMPCAP, 4)])
def test_the_kernel_s_drops_are_reported_and_the_packets_kept(
    name: str, words: str, dropped: int, tmp_path: Path
) -> None:
    stand_in(tmp_path, "tcpdump", REFUSES)
    capturing(tmp_path, name, words)
    done = record(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()
    assert (first, json.loads(last)) == (name, {"program": name, "dropped": dropped})
    assert (tmp_path / "capture.pcap").read_text() == "packets"
    asked = (tmp_path / "arguments").read_text()
    assert "-s 96" in asked
    assert asked.endswith("tcp port 9000\n")


def test_the_reasons_of_both_programs_are_said(tmp_path: Path) -> None:
    stand_in(tmp_path, "tcpdump", REFUSES)
    stand_in(tmp_path, "dumpcap", "#!/bin/sh\nexit 1\n")
    done = record(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "any: You don't have permission; it ended without a reason\n"


@pytest.mark.parametrize(("words", "status"), [(TCPDUMP, 1), ("no counts", 0)])
def test_an_end_that_is_not_as_expected_is_an_error(words: str, status: int, tmp_path: Path) -> None:
    capturing(tmp_path, "tcpdump", words, status)
    done = record(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("the capture did not end as expected: ")


def test_a_capture_that_ends_early_is_an_error(tmp_path: Path) -> None:
    stand_in(tmp_path, "tcpdump", "#!/bin/sh\necho listening on any >&2\necho no such device >&2\n")
    command = [sys.executable, str(RECORDER), str(tmp_path / "capture.pcap"), "96", "tcp"]
    with subprocess.Popen(
        command, env={"PATH": f"{tmp_path}:/bin"}, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.wait(300) == 1
        assert process.stderr is not None
        assert process.stderr.read() == "the capture ended early: no such device\n"
