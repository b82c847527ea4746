"""Makes the folder of a new protocol from the template beside this module.

The template is a protocol that works. Its files contain the words of ``_words``, which are replaced.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path

from harness.errors import ExperimentError
from peer.protocols.registry import PROTOCOLS

TEMPLATE = Path(__file__).parent / "protocol"

STUDY_FILE = "study.toml"
"""The study of a new protocol, beside its experiment."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def make_protocol(name: str, folder: Path) -> list[Path]:
    """Write a package with code, an experiment, a study, tests and a page.

    Args:
        name: of the protocol, such as ``push-gossip``.
        folder: must not exist, or be empty.

    Returns:
        The files, relative to the folder.

    Raises:
        ExperimentError: the name cannot be used, or the folder has files.
    """
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name):
        raise ExperimentError("NAME", f"expected lower-case words joined by '-', got {name!r}")
    if name in PROTOCOLS or iskeyword(module) or find_spec(module) is not None:
        raise ExperimentError("NAME", f"{name!r} is the name of a protocol or a module; choose another one")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExperimentError(str(folder), "exists and is not an empty folder")
    made = []
    for source in _files(TEMPLATE):
        target = Path(_replace_words(str(source.relative_to(TEMPLATE)), name))
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(_replace_words(source.read_text(encoding="utf-8"), name), encoding="utf-8")
        made.append(target)
    return made


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _replace_words(text: str, name: str) -> str:
    """Return a text of the template with the name of a protocol, of its module and of its classes."""
    words = {
        "template-protocol": name,
        "template_protocol": name.replace("-", "_"),
        "TemplateProtocol": name.title().replace("-", ""),
    }
    for word, given in words.items():
        text = text.replace(word, given)
    return text
