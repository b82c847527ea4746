"""Commands reach a machine unchanged, whatever its user's login shell makes of quotes and other special characters."""

import re
import shutil
import subprocess

import pytest

from harness.deployment.login_shell import wrap_command

SCRIPTS = {
    "quotes": """printf '%s' "it's" 'a "b"'""",
    "backslashes": r"printf '%s' 'C:\new\table\\' '\0101\c'",
    "history": "printf '%s' '!!' wow!",
    "variables": "name=value; printf '%s' \"$name ${name}s $(echo '$name')\"",
    "lines": "for word in a b\ndo printf '%s\n' \"$word\"\ndone",
    "globs": "printf '%s' '*' '?' '[a]' '{a,b}' '~' '#' ';' '&' '|' '>' '%d'",
    "letters": "printf '%s' 'Zürich, 東京'",
    "status": "printf '%s' out; exit 7",
    "exec": "exec printf '%s' replaced",
}


@pytest.mark.parametrize("shell", ["sh", "bash", "fish", "tcsh"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_every_login_shell_runs_the_script(shell: str, script: str) -> None:
    assert shutil.which(shell), "the set-up of the tests installs it (harness/setup/programs.txt)"
    direct = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    wrapped = subprocess.run([shell, "-c", wrap_command(script, "mark-1")], capture_output=True, check=False)
    assert (wrapped.stdout, wrapped.returncode) == (b"\nmark-1\n" + direct.stdout, direct.returncode)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_the_words_have_nothing_that_shells_read_differently_in_single_quotes(script: str) -> None:
    command = wrap_command(script, "mark-1")
    assert re.fullmatch(r"exec sh -c '[^'\\!\n]*' '([^'\\!\n]|\\0[0-7]{3})*' mark-1", command)
