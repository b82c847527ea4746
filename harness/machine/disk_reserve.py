"""Disk space reserved in a run directory, so that a run can still report that the disk is full."""

import os
import shutil
from pathlib import Path

from harness.errors import TestbedError
from metrics.rundir.files import RESERVE_FILE

RESERVE_BYTES = 4 << 20
"""Enough for the manifest, the certificate and the last lines of logs of a run with some hundred hosts."""


class Reserve:
    """A file that reserves the space until ``release``."""

    def __init__(self, folder: Path) -> None:
        """Reserve the space.

        Raises:
            TestbedError: the disk is full.
        """
        self._file = folder / RESERVE_FILE
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._file.unlink(missing_ok=True)
            raise TestbedError(f"reserve {RESERVE_BYTES >> 20} MiB in {folder}", error.strerror or "") from error

    def release(self) -> bool:
        """Free the space. Return whether the disk was full: less than this much was free besides."""
        full = self._is_full()
        self._file.unlink(missing_ok=True)
        return full

    def lost(self) -> dict[str, str]:
        """Return the disk, if it is full: later writes may be lost."""
        return {f"the disk of {self._file.parent}": "no space left"} if self._is_full() else {}

    def _is_full(self) -> bool:
        return shutil.disk_usage(self._file.parent).free < RESERVE_BYTES
