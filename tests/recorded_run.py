"""The run in ``tests/golden/recorded-run.tar.xz``: eight real peers on an emulated network that loses packets."""

import tarfile
from pathlib import Path

RECORDED = Path(__file__).parent / "golden" / "recorded-run.tar.xz"


def extract_run(folder: Path) -> Path:
    """Extract the run into a folder, and return its directory."""
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")
    return folder / "run"
