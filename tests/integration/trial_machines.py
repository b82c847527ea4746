"""``trellis machines`` as a process, for tests that use its machines."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.experiment.inventory import Inventory, load_inventory

ROOT = Path(__file__).parents[2]


@contextmanager
def printed_inventory(folder: Path, *options: str) -> Iterator[tuple[Inventory, subprocess.Popen[str]]]:
    """Two machines of the command, and the inventory that it prints, which is in ``printed.toml`` of the folder."""
    command = [sys.executable, "-m", "harness.cli", "machines", "2", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("#"):
                    break
            path = folder / "printed.toml"
            path.write_text("".join(lines))
            yield load_inventory(path), process
        finally:
            process.send_signal(signal.SIGINT)
