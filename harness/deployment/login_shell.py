"""Commands for machines whose users have any login shell.

sshd gives a command to the user's login shell, which may be fish or csh. These, and all others, agree on a command of
plain words in single quotes without line ends, backslashes and exclamation marks. So the shell gets only
``exec sh -c ...``, and ``sh`` decodes the command.
"""

from typing import Final

_RUN: Final = 'echo; echo "$1"; eval "$(printf %b "$0")"'
_SPECIAL: Final = str.maketrans({letter: f"\\0{ord(letter):03o}" for letter in "\\'!\n"})


def wrap_command(script: str, marker: str) -> str:
    """Return the command that runs a script of POSIX sh under any login shell.

    Args:
        script: the script.
        marker: a line that is printed before the script begins, so that what the login shell itself prints can be told
            from the script's output; letters, digits and ``-``.
    """
    return f"exec sh -c '{_RUN}' '{script.translate(_SPECIAL)}' {marker}"
