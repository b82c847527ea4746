"""Names of objects as paths. A store's names come from its owner, or from any server that answers in its place."""

_REFUSED = ("", ".", "..")


class StoreError(OSError):
    """A store cannot be used: its URI is wrong, or the store gave an error. ``exit_code`` is the CLI's."""

    exit_code = 2


class UnreadableError(StoreError):
    """A file does not have the content that its name says."""

    def __init__(self, folder: object, name: str, cause: Exception) -> None:
        said = str(cause).strip().partition("\n")[0]
        super().__init__(f"{folder}: {name} is damaged: {said}")


def inner_name(name: str, place: object) -> str:
    """Return a name that stays in its folder, whether it is a key of a store or a path of this machine.

    Args:
        name: relative to a folder, with slashes between its parts.
        place: the folder, for the message.

    Raises:
        StoreError: the name has an empty part (as an absolute path has), the part ``.`` or ``..``, a backslash or a
            control character.
    """
    parts = name.split("/")
    if any(part in _REFUSED for part in parts) or "\\" in name or not name.isprintable():
        problem = "expected names without empty parts, '.', '..', backslashes and control characters"
        raise StoreError(f"{place}: {problem}, found {name!r}")
    return name
