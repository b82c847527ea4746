"""Space set aside in a run directory, so that a run whose disk becomes full can still say so."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harness.errors import TestbedError
from metrics.rundir.files import RESERVE_FILE

RESERVE_BYTES = 4 << 20
"""Enough for the manifest, the certificate and the ends of logs of a run of some hundred hosts."""


class Reserve:
    """A file that holds the space until ``release``."""

    def __init__(self, folder: Path) -> None:
        """Set the space aside.

        Raises:
            TestbedError: the disk is too full to begin with.
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
            raise TestbedError(f"set {RESERVE_BYTES >> 20} MiB aside in {folder}", error.strerror or "") from error

    def release(self) -> bool:
        """Give the space back; whether there was less than as much beside it, so that the disk is as good as full."""
        full = self._is_full()
        self._file.unlink(missing_ok=True)
        return full

    def lost(self) -> dict[str, str]:
        """The disk, when it is as good as full: what is written from now on may be lost."""
        return {f"the disk of {self._file.parent}": "no space left"} if self._is_full() else {}

    def _is_full(self) -> bool:
        return shutil.disk_usage(self._file.parent).free < RESERVE_BYTES
