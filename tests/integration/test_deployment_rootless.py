"""An sshd and a deployment in a sandbox made without root: the session has the capabilities that peers need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import harness

INSIDE = """
from pathlib import Path
from harness.deployment.fleet import Deployment
from harness.testbeds.emulated.sshd import serving_ssh

with serving_ssh(Path("/tmp/m"), "127.0.0.1", 2222) as machine:
    with Deployment([machine], "r", Path("/tmp/logs")) as deployment:
        deployment.connect()
        deployment.ship()
        print(deployment.sessions["local"].run("id -u && unshare --net echo entered"))
"""
OUTSIDE = """
import sys
from harness.machine import sandbox
sys.exit(sandbox.run([sys.executable, "-c", sys.argv[1]]))
"""
NOBODY = 65534
AS_NOBODY = [
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=-all", "--bounding-set=-all"),
]


def reachable_python() -> str:
    """This Python, or the system's of the same version where ours lies in a folder that only root may enter."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/python{version}"):
        if subprocess.run([*AS_NOBODY, "test", "-x", os.path.realpath(python)]).returncode == 0:
            return python
    raise AssertionError(f"nobody can execute no Python {version}")


@pytest.mark.root
def test_a_user_without_root_gets_a_machine_too():
    paths = [str(Path(harness.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    done = subprocess.run(
        [*AS_NOBODY, reachable_python(), "-c", OUTSIDE, INSIDE],
        env={**os.environ, "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.stdout.split() == [str(NOBODY), "entered"], done.stderr
