"""Records the packets of a machine's peers. The machine's Python runs the text of this file.

    FILE SNAPLEN FILTER     capture the beginnings of the packets that match; print a line when packets are received

It uses tcpdump or, if that cannot capture, dumpcap, with the rights of the user. At the end of standard input it ends
the program and prints its name and how many packets the kernel dropped, as JSON. The file uses only the standard
library.
"""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import IO

PROGRAMS = {
    "tcpdump": ("-i any -n -B 16384 --time-stamp-precision=nano -w -", b"listening on"),
    "dumpcap": ("-i any -q -B 16 -w -", b"Capturing on"),
}
"""The programs, their options, and what each prints when it receives packets. Root may have to write the file itself,
since tcpdump gives its rights up before it opens one. Hence ``-w -``."""

FILTER_OPTION = {"tcpdump": (), "dumpcap": ("-f",)}

DROPPED = (
    re.compile(rb"(\d+) packets? dropped by kernel"),
    re.compile(rb"received/dropped on interface .*?: \d+/(\d+)"),
)

LAST_PACKETS_S = 1.5
"""Time in which the program receives what the kernel still has: it hands packets over once per second."""

END_S = 20.0


def start(snaplen: str, wanted: str, file: IO[bytes]) -> tuple[str, subprocess.Popen[bytes]]:
    """Start the first program that can capture, and return its name and process when it receives packets."""
    reasons = []
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin"
    for name, (options, ready) in PROGRAMS.items():
        path = shutil.which(name, path=search)
        if path is None:
            reasons.append(f"{name} is not installed")
            continue
        command = [path, *options.split(), "-s", snaplen, *FILTER_OPTION[name], wanted]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE)
        if said := await_ready(process, ready):
            reasons.append(said)
        else:
            return name, process
    sys.exit("; ".join(reasons))


def await_ready(process: subprocess.Popen[bytes], ready: bytes) -> str:
    """Wait until a program receives packets; return what it said if it ended instead."""
    assert process.stderr is not None
    said = b""
    for line in process.stderr:
        said += line
        if ready in line:
            return ""
    process.wait()
    return describe(said)


def describe(said: bytes) -> str:
    """Return what a program printed, on one line."""
    return " ".join(said.decode(errors="replace").split()) or "it ended without a reason"


def finish(process: subprocess.Popen[bytes]) -> int:
    """End the program and return how many packets the kernel dropped."""
    time.sleep(LAST_PACKETS_S)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=END_S)[1]
    counts = [int(found[1]) for pattern in DROPPED if (found := pattern.search(said))]
    if process.returncode or not counts:
        sys.exit(f"the capture did not end as expected: {describe(said)}")
    return counts[0]


def await_end(process: subprocess.Popen[bytes]) -> None:
    """Return at the end of standard input; exit if the program ends first."""
    assert process.stderr is not None
    said = b""
    while sys.stdin not in select.select([sys.stdin, process.stderr], [], [])[0]:
        line = process.stderr.readline()
        if not line:
            sys.exit(f"the capture ended early: {describe(said)}")
        said += line


def main(arguments: list[str]) -> None:
    """Capture until the end of standard input."""
    file_name, snaplen, wanted = arguments
    with open(file_name, "xb") as file:  # noqa: PTH123 - Path takes longer to import
        name, process = start(snaplen, wanted, file)
        print(name, flush=True)
        await_end(process)
        print(json.dumps({"program": name, "dropped": finish(process)}))


if __name__ == "__main__":
    main(sys.argv[1:])
