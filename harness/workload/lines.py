"""Lines of the files that a workload is read from."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from harness.errors import ExperimentError


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers; a .gz file is unpacked.

    Raises:
        ExperimentError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except UnicodeDecodeError as error:
        raise ExperimentError(str(path), f"not UTF-8 text at byte {error.start}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ExperimentError(str(path), f"not a gzip file: {error}") from None
    except OSError as error:
        raise ExperimentError(str(path), error.strerror or "cannot be read") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line
