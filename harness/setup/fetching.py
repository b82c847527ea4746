"""Gets the files of an implementation into the user's cache, by the commands that its file names."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import TrellisError
from harness.experiment.implementations import Found

_SHOWN = 400


class FetchError(TrellisError):
    """The files of an implementation could not be fetched."""


def fetch(found: Found) -> Path:
    """Run the commands of an implementation in a folder of the cache, unless it is there and whole.

    The folder has its final path from the beginning, since programs such as virtual environments contain it. It is
    marked as whole by ``Found.mark`` at the end. Of two processes that fetch the same implementation, one waits for the
    other and keeps what that one has made.

    Returns:
        The folder.

    Raises:
        FetchError: a command failed, a file is not the one that the implementation names, or an earlier folder cannot
            be removed.
    """
    if not _is_whole(found):
        with _alone(found):
            if not _is_whole(found):
                _make(found)
    return found.files


def _is_whole(found: Found) -> bool:
    return found.is_there and not list(found.wrong_files(found.files))


@contextmanager
def _alone(found: Found) -> Iterator[None]:
    """Wait until no other process fetches the implementation, and keep others waiting. The lock ends with the process.

    Raises:
        FetchError: the file of the lock cannot be made.
    """
    lock = found.files.with_name(f"{found.files.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w", encoding="ascii")
    except OSError as error:
        raise FetchError(f"{lock} cannot be made: {error.strerror}") from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(found: Found) -> None:
    """Make the folder; leave nothing if that fails.

    Raises:
        FetchError: see ``fetch``.
    """
    target = found.files
    found.mark.unlink(missing_ok=True)  # first, so that no run begins with what is removed
    shutil.rmtree(target, ignore_errors=True)
    try:
        target.mkdir()
    except OSError as error:
        raise FetchError(f"{target} cannot be made: {error.strerror}") from None
    try:
        for words in found.said.fetch:
            _run(found.fill_in(words), target)
        if wrong := list(found.wrong_files(target)):
            raise FetchError(f"{found.name}: {wrong[0]} is not the file that {found.path} names")
        found.mark.touch()
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _run(words: tuple[str, ...], folder: Path) -> None:
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                words, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
            )
        except OSError as error:
            raise FetchError(f"{words[0]} cannot be started: {error.strerror}") from None
        output.seek(0)
        said = output.read().decode(errors="replace").strip()[-_SHOWN:]
    if done.returncode:
        raise FetchError(f"{' '.join(words)} failed with status {done.returncode}: {said}")
