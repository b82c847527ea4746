"""What a user reads when TUN devices are unavailable."""

import os
from pathlib import Path

import pytest

from harness.errors import TestbedError
from harness.planes.userspace import tun


def test_no_device_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tun, "TUN_PATH", str(tmp_path / "tun"))
    with pytest.raises(TestbedError, match="no such device; load the module"):
        tun.open_clone()


def test_device_file_of_root_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "tun"
    path.touch(mode=0o600)
    monkeypatch.setattr(tun, "TUN_PATH", str(path))

    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(TestbedError, match=r"permission denied \(mode 0600\); run as root, or chmod 0666 .*tun"):
        tun.open_clone()
