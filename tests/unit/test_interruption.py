"""What Ctrl-C and SIGTERM do to a command and to what it has started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

COMMAND = """
import sys
from harness import cli, interruption
from harness.commands import check
interruption.GRACE_S = 3600.0  # that it is over kills nothing here
check.add_arguments = lambda parser: parser.add_argument("program")
check.run = lambda arguments: interruption.run_stage([sys.executable, "-c", arguments.program])
sys.exit(cli.main(["check", sys.argv[1]]))
"""

OBEDIENT = "import time\nprint('up', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('heard')"
STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGINT, lambda *_: print('heard', flush=True))\n"
    "print('up', flush=True)\nwhile True: time.sleep(60)"
)


def start(program: str) -> subprocess.Popen[str]:
    """A command that has started a program, in a process group of its own, as in a terminal."""
    argv = [sys.executable, "-c", COMMAND, program]
    process = subprocess.Popen(
        argv, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_what_was_started_hears_of_an_interrupt_once(number: signal.Signals, word: str) -> None:
    process = start(OBEDIENT)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (128 + number, "heard\n")
    assert err.splitlines()[-1] == f"trellis check: {word}"
    assert "Traceback" not in err


def test_a_second_ctrl_c_kills_at_once_what_does_not_end() -> None:
    process = start(STUBBORN)
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "heard\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)  # its output ends with the last process that holds it
    assert process.returncode == 130
    assert err.splitlines() == ["ending the processes; press Ctrl-C again to kill them", "trellis check: interrupted"]


def test_a_verb_that_is_still_being_imported_can_be_interrupted() -> None:
    program = "import sys\nfrom harness import cli\nsys.modules['harness.commands.check'] = None\n"
    program += "def late(name): raise KeyboardInterrupt\ncli.import_module = late\nsys.exit(cli.main(['check', 'x']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "trellis check: interrupted\n")
