"""Gets the files of an implementation into the user's cache, by the commands that its file names."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.errors import TrellisError
from harness.experiment.implementations import Found

_SHOWN = 400


class FetchError(TrellisError):
    """The files of an implementation could not be fetched."""


def fetch(found: Found) -> Path:
    """Run the commands of an implementation in a folder of the cache, unless it is there and whole.

    The folder has its final path from the beginning, since programs such as virtual environments contain it. It is
    marked as whole by ``Found.mark`` at the end.

    Returns:
        The folder.

    Raises:
        FetchError: a command failed, a file is not the one that the implementation names, or an earlier folder cannot
            be removed.
    """
    target = found.files
    if found.is_there and not list(found.wrong_files(target)):
        return target
    shutil.rmtree(target, ignore_errors=True)
    try:
        target.mkdir(parents=True)
    except OSError as error:
        raise FetchError(f"{target} cannot be made anew: {error.strerror}") from None
    try:
        for words in found.said.fetch:
            _run(found.fill_in(words), target)
        if wrong := list(found.wrong_files(target)):
            raise FetchError(f"{found.name}: {wrong[0]} is not the file that {found.path} names")
        found.mark.touch()
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


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
