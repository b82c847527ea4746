"""Which sshd a run starts: the one that the doctor finds."""

import os
import shutil
from pathlib import Path

import pytest

from harness.doctor import programs
from harness.doctor.programs import find_program
from harness.errors import TestbedError
from harness.testbeds.emulated.sshd import serving_ssh, start_sshd
from tests.integration.deployment_machines import sandboxed

pytestmark = pytest.mark.root


@sandboxed
def test_the_first_sshd_of_the_path_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran = tmp_path / "ran"
    own = tmp_path / "bin" / "sshd"
    own.parent.mkdir()
    own.write_text(f'#!/bin/sh\necho >"{ran}"\nexec "{find_program("sshd")}" "$@"\n')
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    with serving_ssh(tmp_path / "server", "127.0.0.1", 2222):
        assert ran.exists()


@sandboxed
def test_without_an_sshd_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "ssh-keygen").symlink_to(str(shutil.which("ssh-keygen")))
    monkeypatch.setattr(programs, "EXTRA_PATH", ())
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(TestbedError, match="sshd is not installed"):
        start_sshd(tmp_path / "server", "127.0.0.1", 2222)
