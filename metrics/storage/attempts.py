"""Write files that appear only when they are whole.

A task may run twice, even at the same time (retries, speculation). So each attempt writes its own file, which takes the
place of the target when it is whole.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from metrics.storage.copies import copy_file, copy_files, files_below, scratch_folder
from metrics.storage.paths import Place, StorePath


class Attempt:
    """One attempt to write a file. An attempt that is neither published nor discarded leaves nothing at ``target``.

    Args:
        target: where the file is to be; an earlier file is replaced.

    Attributes:
        path: the file of this machine to write. Readers of the folder leave out names like it.
    """

    def __init__(self, target: Place) -> None:
        self._target = target
        self._folder = None
        if isinstance(target, StorePath):
            self._folder = tempfile.TemporaryDirectory(prefix="trellis-", dir=scratch_folder())
            self.path = Path(self._folder.name) / target.name
        else:
            self.path = target.with_name(f".{target.name}.{uuid4().hex}")

    def publish(self) -> None:
        """Let the file take its place."""
        if isinstance(self._target, StorePath):
            copy_file(self.path, self._target)
            self.discard()
        else:
            self.path.replace(self._target)

    def discard(self) -> None:
        """Remove the file of this machine, if it is there."""
        self.path.unlink(missing_ok=True)
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def whole(target: Place) -> Iterator[Path]:
    """Yield where to write a file that appears at ``target`` when the block ends well; otherwise it is removed."""
    attempt = Attempt(target)
    try:
        yield attempt.path
        attempt.publish()
    finally:
        attempt.discard()


@contextmanager
def whole_folder(target: Place) -> Iterator[Path]:
    """Yield where to make a folder that appears at ``target`` when the block ends well, unless it is there.

    In a store its objects appear one after another, and objects of another attempt are replaced. So attempts must write
    the same, and readers wait until one has ended.
    """
    if isinstance(target, StorePath):
        with tempfile.TemporaryDirectory(prefix="trellis-", dir=scratch_folder()) as folder:
            yield Path(folder)
            copy_files(files_below(Path(folder)), target)
        return
    attempt = target.with_name(f".{target.name}.{uuid4().hex}")
    attempt.mkdir()
    try:
        yield attempt
        try:
            attempt.rename(target)
        except OSError:  # another attempt may have been faster
            if not target.exists():
                raise
    finally:
        shutil.rmtree(attempt, ignore_errors=True)
