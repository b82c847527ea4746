"""Only a protocol's package and its model name it or its frames: all else in harness and metrics reads descriptions."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from peer.core.frames import frame_type, kind_names
from peer.protocols.registry import PROTOCOLS

CHECKOUT = Path(__file__).parents[2]
MODELS = CHECKOUT / "harness/planning/models"
ABOUT_ONE = [CHECKOUT / f"metrics/trace_forms/{name}.py" for name in ("pubsub", "netviz")]
ABOUT_ONE += [CHECKOUT / "metrics/libp2p_names.py", CHECKOUT / "harness/scaffold/protocol"]
"""Traces and metrics of programs with GossipSub, and the package that ``trellis new`` makes."""
SOURCES = [
    path
    for room in ("harness", "metrics")
    for path in sorted((CHECKOUT / room).rglob("*.py"))
    if not {*ABOUT_ONE, MODELS} & {path, *path.parents}
]

TEMPLATES = [path for room in ("harness", "metrics") for path in sorted((CHECKOUT / room).rglob("*.j2"))]

ENGLISH = {"random", "complete"}
"""Names that are words of other meanings, too: only a string that is nothing else counts."""

WORDS = {"graft", "profile", "prune", "release"}
"""Names of frames that are trace events or words of other meanings, too."""

SPELLED = {name.replace("-", ""): name for name in PROTOCOLS if name not in ENGLISH}
for number, frame in kind_names().items():
    module = frame_type(number).__module__.split(".")
    if module[1] == "protocols" and frame not in WORDS:
        SPELLED[frame] = module[2].replace("_", "-")
STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
ALONE = "(?:[a-zA-Z]*['\"]+)?{}['\"]*"
"""A string's token that has nothing else in it."""

LONGEST = 2 + max(name.count("-") for name in PROTOCOLS)
"""Words in which a name may be spelled, such as Ring-Per-Topic or Spider-Cast."""


def spelled(identifier: str) -> Iterator[str]:
    """The protocols that an identifier names, by themselves or by a frame: ``ring_per_topic``, ``STAN``, ``Ihave``."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]
    for begin in range(len(words)):
        for end in range(begin + 1, min(begin + LONGEST, len(words)) + 1):
            if name := SPELLED.get("".join(words[begin:end])):
                yield name


def named(source: str) -> list[tuple[int, str]]:
    """The protocols that names and strings in a source name, as (line, protocol).

    Docstrings and the texts below fields are left out: they cite papers.
    """
    texts = {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        identifiers = []
        if token.type == tokenize.NAME:
            identifiers = [token.string]
        elif token.type in STRINGS and token.start not in texts:
            identifiers = re.findall(r"[A-Za-z0-9_-]+", token.string)
            found += [(token.start[0], name) for name in ENGLISH if re.fullmatch(ALONE.format(name), token.string)]
        found += [(token.start[0], name) for identifier in identifiers for name in spelled(identifier)]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_no_protocol_is_named(path: Path) -> None:
    assert named(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_names_a_protocol(path: Path) -> None:
    identifiers = re.findall(r"[A-Za-z0-9_-]+", path.read_text(encoding="utf-8"))
    assert [name for identifier in identifiers for name in spelled(identifier)] == []


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize(
    "code", ['if protocol == "{0}":\n    pass', "x = {{'{0}': 1}}", "x = f'{0}'"], ids=["compared", "key", "formatted"]
)
def test_a_name_in_a_string_is_found(name: str, code: str) -> None:
    assert (1, name) in named(code.format(name))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from peer.protocols.ring_per_topic import PROTOCOL", "ring-per-topic"),
        ("x = experiment.stan.degree_factor", "stan"),
        ("class StanModel: pass", "stan"),
        ("def _gossipsub(): pass", "gossipsub"),
        ("x = GossipsubBoundedParameters()", "gossipsub-bounded"),
        ("from x import SpiderCast", "spidercast"),
        ("TOPIARY = 1", "topiary"),
        ("x = 'stancollect'", "stan"),
        ("isinstance(frame, SpiderLeave)", "spidercast"),
        ("kinds = {'ihave', 'iwant'}", "gossipsub"),
        ("RING_LINK = 90", "ring-per-topic"),
        ('x = "what the spec page says of StAN"', "stan"),
    ],
)
def test_a_name_is_found_however_it_is_spelled(code: str, name: str) -> None:
    assert (1, name) in named(code)


@pytest.mark.parametrize(
    "code",
    [
        "instance = standing + distance",
        "subscriber = describe(unsubscribed)",
        "from random import Random\nx = draws.random()",
        "complete = True",
        'x = "a random word"',
        '"""Source: SpiderCast section 3.1."""\nx: int = 1\n"""As in StAN."""',
        "x = 1  # as in StAN",
    ],
)
def test_other_words_and_texts_are_let_through(code: str) -> None:
    assert named(code) == []
