"""Descriptions of the types of a file's keys, for error messages and docs/experiment-spec.md."""

import re
from functools import cache

from msgspec import Struct, inspect

_NAMES: dict[type, tuple[str, str]] = {
    inspect.IntType: ("an integer", "integers"),
    inspect.FloatType: ("a number", "numbers"),
    inspect.StrType: ("a string", "strings"),
    inspect.BoolType: ("true or false", "booleans"),
    inspect.StructType: ("a section", "sections"),
    inspect.DictType: ("a section", "sections"),
    inspect.AnyType: ("a value", "values"),
}
_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="), ("multiple_of", "a multiple of"))
_type_info = cache(inspect.type_info)  # 0.1 s for the form of experiments, which a hint needs once per section


def describe_type(kind: inspect.Type) -> str:
    """Describe the values of a type, such as ``an integer >= 2 and <= 10000``."""
    if isinstance(kind, inspect.UnionType):
        return " or ".join(describe_type(part) for part in kind.types if not isinstance(part, inspect.NoneType))
    if isinstance(kind, inspect.LiteralType):
        return one_of([quote(value) for value in kind.values])
    if isinstance(kind, inspect.VarTupleType):
        return f"a list of {_several(kind.item_type)}"
    if isinstance(kind, inspect.TupleType):
        return f"[{', '.join(describe_type(part) for part in kind.item_types)}]"
    bounds = [f"{sign} {_number(limit)}" for name, sign in _BOUNDS if (limit := getattr(kind, name, None)) is not None]
    shown = (getattr(kind, "pattern", None) or "").replace(r"\Z", "$")  # as readers know it
    return " ".join([_NAMES[type(kind)][0], " and ".join(bounds)]).strip() + (f" like {shown}" if shown else "")


def _several(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        return " or ".join(map(_several, kind.types))
    if isinstance(kind, inspect.VarTupleType):
        return f"lists of {_several(kind.item_type)}"
    return _NAMES[type(kind)][1] if type(kind) in _NAMES else describe_type(kind)


def field_type(form: type[Struct], path: str) -> inspect.Type:
    """Return the type at a path such as ``$.underlay.hosts``."""
    kind: inspect.Type = _type_info(form)
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        if index:
            kind = next(part.item_type for part in _parts(kind) if isinstance(part, inspect.VarTupleType))
        else:
            kind = {field.encode_name: field.type for field in _fields(kind)}[name]
    return kind


def named_sections(form: type[Struct], path: str) -> type[Struct]:
    """Return the form of the sections with free names at a path."""
    kind = field_type(form, path)
    assert isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StructType), "the caller knows"
    return kind.value_type.cls


def field_names(form: type[Struct], path: str) -> list[str]:
    """Return the fields of the section at a path."""
    return [field.encode_name for field in _fields(field_type(form, path))]


def values_or_sections(form: type[Struct], path: str, *, sections: bool) -> list[str]:
    """Return the fields of the section at a path that are sections, or those that are not."""
    return [field.encode_name for field in _fields(field_type(form, path)) if _is_section(field) is sections]


def all_places(form: type[Struct], *, sections: bool) -> list[str]:
    """Return the places in the form of all sections, or of all other fields: ``seed``, ``underlay.hosts``."""
    top = _fields(_type_info(form))
    within = [
        f"{section.encode_name}.{name}"
        for section in top
        if _is_section(section) or _is_list_of_sections(section)
        for name in values_or_sections(form, f"$.{section.encode_name}{_entry(section)}", sections=sections)
    ]
    return [field.encode_name for field in top if _is_section(field) is sections] + within


def _is_section(field: inspect.Field) -> bool:
    return any(isinstance(part, inspect.StructType) for part in _parts(field.type))


def _is_list_of_sections(field: inspect.Field) -> bool:
    return isinstance(field.type, inspect.VarTupleType) and isinstance(field.type.item_type, inspect.StructType)


def _entry(field: inspect.Field) -> str:
    """Return what leads from a field's path to the sections in it."""
    return "[0]" if _is_list_of_sections(field) else ""


def literal_values(kind: inspect.Type) -> list[str]:
    """Return the texts that a type lists as its values."""
    found = [part.values for part in _parts(kind) if isinstance(part, inspect.LiteralType)]
    return [value for values in found for value in values if isinstance(value, str)]


def quote(value: object) -> str:
    """Return a listed value as a file has it."""
    return f'"{value}"' if isinstance(value, str) else str(value)


def _fields(kind: inspect.Type) -> tuple[inspect.Field, ...]:
    return next(part.fields for part in _parts(kind) if isinstance(part, inspect.StructType))


def _parts(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """Return the alternatives of a union, or the type itself."""
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def one_of(values: list[str]) -> str:
    """Join at least one value to ``a, b or c``."""
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"


def _number(limit: float) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)
