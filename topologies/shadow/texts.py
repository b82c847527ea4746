"""Reads YAML 1.2 as Shadow does: the core schema, merge keys (``<<``), and no key twice.

PyYAML's own loader knows YAML 1.1, in which ``yes`` is a boolean, ``010`` is eight and ``1:30`` is ninety.
"""

import re
from typing import Any, ClassVar, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from topologies.reading import InputError

MOST_ENTRIES: Final = 200_000
"""Limit on the entries of a mapping with those that it merges: merge keys may multiply."""

_RESOLVED: Final = {
    "null": (r"|~|null|Null|NULL", "~nN\0"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.nan|\.NaN|\.NAN",
        "-+0123456789.",
    ),
    "merge": (r"<<", "<"),
}
"""The tags of plain scalars: the texts that have them, and how these begin. Source: YAML 1.2.2, section 10.3.2."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """PyYAML's loader with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def compose_mapping_node(self, anchor: object) -> MappingNode:
        """Compose a mapping, and refuse keys that are no plain values, or are there twice."""
        node: MappingNode = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise _refusal(key, "a key is a mapping or a list")
            if (key.tag, key.value) in seen:
                raise _refusal(key, f"the key {key.value[:40]!r} is there twice")
            seen.add((key.tag, key.value))
        return node

    def flatten_mapping(self, node: MappingNode) -> None:
        """Replace merge keys by what they merge."""
        super().flatten_mapping(node)
        if len(node.value) > MOST_ENTRIES:
            raise _refusal(node, f"expected at most {MOST_ENTRIES:,} entries with those that are merged")

    def construct_whole(self, node: ScalarNode) -> int:
        """Return a whole number; a leading zero does not make it octal."""
        text = str(self.construct_scalar(node))
        for prefix, base in (("0o", 8), ("0x", 16)):
            if text.startswith(prefix):
                return int(text[2:], base)
        return int(text)


for _name, (_pattern, _first) in _RESOLVED.items():
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}",
        re.compile(rf"(?:{_pattern})\Z"),
        ["" if each == "\0" else each for each in _first],
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)


def _refusal(node: Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def parse_yaml(place: str, text: str) -> object:
    """Return the plain values of a YAML text.

    Args:
        place: the file, for errors.
        text: its text.

    Raises:
        InputError: the text is not YAML; the place is the file, line and column.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise InputError(*_described(place, error)) from None
    except RecursionError:
        raise InputError(place, "nested too deeply") from None
    except (ValueError, TypeError, OverflowError, AttributeError, LookupError) as error:
        # An absurd number, or a tag that does not fit its value: PyYAML lets the errors of its own code through.
        raise InputError(place, f"a value that YAML does not have: {_on_line(str(error))}") from None


def _described(place: str, error: yaml.YAMLError) -> tuple[str, str]:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "expected YAML"
    where = place if mark is None else f"{place}:{mark.line + 1}:{mark.column + 1}"
    return where, _on_line(str(problem))


def _on_line(text: str) -> str:
    return " ".join(text.split())[:200]
