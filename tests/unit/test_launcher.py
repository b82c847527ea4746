"""The launcher and its set-up scripts, run for real on a made-up checkout with made-up programs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
LOCK = CHECKOUT / "requirements.lock"

FAKE_PYTHON = """#!/bin/sh
# Stands for a Python: makes a .venv of itself, installs by noting that it did, and shows what it is asked to run.
echo "${PYTHONSAFEPATH:-} $1 $2" >>"$(dirname "$0")/starts"
case "$1 $2" in
"-I -c") exit 0 ;;
"-c import sysconfig;"*) echo "$(dirname "$0")" ;;
"-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
"-m pip") [ "$3" != config ] || exec cat "$(dirname "$0")/../../pip-config"
    for last; do :; done
    [ ! -e "$(dirname "$0")/../../uv" ] || cp "$(dirname "$0")/../../uv" "$(dirname "$0")/uv"
    { echo "$@"; cat "$last"; } >>"$(dirname "$0")/../../pip"
    [ "${last##*/}" = requirements.lock ] || echo installed >>"$(dirname "$0")/../../installations"
    [ ! -e "$(dirname "$0")/../../break" ] ;;
*) printf '%s\\n' "$PWD" "$@" ;;
esac
"""
BASIC_TOOLS = (
    *("sh", "cat", "cp", "mv", "rm", "ln", "mkdir", "chmod", "dirname", "readlink", "find", "id", "date", "sleep"),
    *("sed", "grep", "tail", "head", "tr", "wc", "sort", "comm", "cmp", "sha256sum", "flock", "setsid"),
)
HANGING_PIP = """"-m pip") [ -e "{never}.done" ] || {{ echo >"{reached}"; cat "{never}"; }}; """


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the real launcher, whose lock is short."""
    folder = tmp_path / "a checkout"
    shutil.copytree(CHECKOUT / "harness/setup", folder / "harness/setup")
    shutil.copy(CHECKOUT / "trellis", folder)
    (folder / "requirements.lock").write_text("msgspec==1.0\n")
    return folder


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH with a machine's basic tools and a made-up Python, and none of the programs of the table."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in BASIC_TOOLS:
        (folder / name).symlink_to(str(shutil.which(name)))
    write_program(folder / "python3", FAKE_PYTHON)
    return folder


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def provide_programs(checkout: Path, tools: Path) -> None:
    """Reduce the table to one program, and provide it."""
    (checkout / "harness/setup/programs.txt").write_text("# comment\ngadget gadget-package run what for\n")
    write_program(tools / "gadget", "#!/bin/sh\n")


def launch(checkout: Path, tools: Path, *argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "trellis", *argv],
        env={"PATH": str(tools)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def processor_s() -> float:
    """What ended processes of this one have computed: how long one takes says more of the machine."""
    times = os.times()
    return times.children_user + times.children_system


def installations(checkout: Path) -> int:
    note = checkout / "installations"
    return len(note.read_text().splitlines()) if note.exists() else 0


def test_first_use_sets_up_and_later_uses_start_at_once(checkout: Path, tools: Path, tmp_path: Path) -> None:
    provide_programs(checkout, tools)
    first = launch(checkout, tools, "plan", "a file.toml", "--set", "x='y z'", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        str(tmp_path), "-P", "-m", "harness.cli", "plan", "a file.toml", "--set", "x='y z'"
    ]  # fmt: skip
    assert "python packages: done" in first.stderr
    before_s = processor_s()
    second = launch(checkout, tools, "plan", cwd=tmp_path)
    assert processor_s() - before_s < 1
    assert second.returncode == 0
    assert second.stderr == ""
    assert installations(checkout) == 1


def test_packages_that_are_built_use_the_locks_setuptools_and_fetch_nothing(checkout: Path, tools: Path) -> None:
    provide_programs(checkout, tools)
    hashed = "setuptools==1.0 ; sys_platform == 'linux' \\\n    --hash=sha256:12 \\\n    --hash=sha256:34\n"
    (checkout / "requirements.lock").write_text(f"pyspark==1.0 \\\n    --hash=sha256:56\n{hashed}simpy==1.0\n")
    launch(checkout, tools)
    first, lock = (checkout / "pip").read_text().split("-m pip install --progress-bar off ")[1:]
    options, _, content = first.partition("\n")
    assert options.startswith("--require-hashes --requirement")
    assert content == hashed
    assert lock.startswith("--require-hashes --no-build-isolation --requirement")


FAKE_UV = """#!/bin/sh
# Stands for uv: notes its arguments and its settings.
{{ echo "$@"; env; }} >"$(dirname "$0")/../../by-uv"
{end}
"""
PIP_CONFIG = """:env:.index-url='https://one.example/simple'
:env:.default-timeout='180'
freeze.all='true'
global.index-url='https://other.example/simple'
global.cert='/etc/certificates.crt'
global.find-links='/opt/wheels'
"""


@pytest.mark.parametrize(
    ("config", "end", "by"),
    [
        (PIP_CONFIG, "exit 0", "uv"),
        ("", "exit 0", "uv"),
        (PIP_CONFIG, "exit 2", "pip"),
        ("global.proxy='http://proxy.example'\n", "exit 0", "pip"),
        ("install.index-url='https://one.example'\n", "exit 0", "pip"),
        ("global.find-links='/opt/wheels /opt/more'\n", "exit 0", "pip"),
    ],
)
def test_uv_installs_from_the_index_of_pip_and_otherwise_pip_does(
    checkout: Path, tools: Path, config: str, end: str, by: str
) -> None:
    provide_programs(checkout, tools)
    (tools / "env").symlink_to(str(shutil.which("env")))
    write_program(checkout / "uv", FAKE_UV.format(end=end))
    (checkout / "pip-config").write_text(config)
    assert launch(checkout, tools).returncode == 0
    lock = checkout / "requirements.lock"
    assert (f"--requirement {lock}" in (checkout / "pip").read_text()) == (by == "pip")
    if by == "uv":
        arguments, *settings = (checkout / "by-uv").read_text().splitlines()
        assert arguments.startswith(f"pip install --python {checkout}/.venv/bin/python --require-hashes")
        assert arguments.endswith(f"--no-build-isolation --requirement {lock}")
        found = {line for line in settings if line.startswith(("UV_", "SSL_"))}
        assert found == (
            {
                "UV_DEFAULT_INDEX=https://one.example/simple",
                "UV_HTTP_TIMEOUT=180",
                "SSL_CERT_FILE=/etc/certificates.crt",
                "UV_FIND_LINKS=/opt/wheels",
            }
            if config
            else set()
        )


def test_checkout_is_on_the_path_of_its_python(checkout: Path, tools: Path) -> None:
    provide_programs(checkout, tools)
    launch(checkout, tools)
    assert (checkout / ".venv/bin/trellis-checkout.pth").read_text() == f"{checkout}\n"


def test_no_python_of_the_set_up_imports_from_the_working_directory(checkout: Path, tools: Path) -> None:
    provide_programs(checkout, tools)
    launch(checkout, tools)
    starts = [*(tools / "starts").read_text().splitlines(), *(checkout / ".venv/bin/starts").read_text().splitlines()]
    assert {"1 -I -c", "1 -m venv", "1 -m pip"} <= set(starts)
    assert all(start.startswith("1 ") or start.split()[0] in ("-I", "-P") for start in starts)


def test_a_link_to_the_launcher_works(checkout: Path, tools: Path, tmp_path: Path) -> None:
    provide_programs(checkout, tools)
    link = tmp_path / "trellis"
    link.symlink_to(checkout / "trellis")
    result = subprocess.run([link], env={"PATH": str(tools)}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (checkout / ".venv").is_dir()


def test_a_changed_lock_or_place_is_set_up_anew(checkout: Path, tools: Path, tmp_path: Path) -> None:
    provide_programs(checkout, tools)
    launch(checkout, tools)
    (checkout / "requirements.lock").write_text("msgspec==2.0\n")
    launch(checkout, tools)
    assert installations(checkout) == 2
    moved = checkout.rename(tmp_path / "elsewhere")
    assert launch(moved, tools).returncode == 0
    assert installations(moved) == 3


def test_a_verb_with_programs_of_its_own_keeps_the_environment(checkout: Path, tools: Path) -> None:
    provide_programs(checkout, tools)
    launch(checkout, tools, "plan")
    with (checkout / "harness/setup/programs.txt").open("a") as table:
        table.write("scope scope-package bench,test what for\n")
    launch(checkout, tools, "plan")
    assert installations(checkout) == 2
    missing = launch(checkout, tools, "bench")
    assert missing.returncode == 1
    assert "scope-package" in missing.stderr
    write_program(tools / "scope", "#!/bin/sh\n")
    assert launch(checkout, tools, "bench").returncode == 0
    assert installations(checkout) == 2


@pytest.mark.root
def test_a_python_that_only_another_user_can_run_is_named(checkout: Path, tools: Path) -> None:
    provide_programs(checkout, tools)
    with tempfile.TemporaryDirectory(prefix="trellis-test-") as made:  # pytest's own folder is closed to other users
        folder = Path(made)
        folder.chmod(0o755)
        shared, path = checkout.rename(folder / "checkout"), tools.rename(folder / "tools")
        assert launch(shared, path).returncode == 0
        (folder / "closed").mkdir(mode=0o700)
        (shared / ".venv/bin/python").rename(folder / "closed/python")
        (shared / ".venv/bin/python").symlink_to("python3")
        (shared / ".venv/bin/python3").symlink_to(folder / "closed/python")
        as_nobody = [str(shutil.which("setpriv")), "--reuid=65534", "--regid=65534", "--clear-groups"]
        command = [*as_nobody, str(shared / "trellis"), "plan"]
        done = subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = f"trellis: {folder}/checkout is set up, but this user cannot run its Python, {folder}/closed/python."
    assert done.stderr.splitlines()[0] == said


def test_a_failed_set_up_says_why_and_the_next_use_repeats_it(checkout: Path, tools: Path) -> None:
    provide_programs(checkout, tools)
    (checkout / "break").touch()
    failed = launch(checkout, tools)
    assert failed.returncode != 0
    assert "python packages: failed" in failed.stderr
    (checkout / "break").unlink()
    assert launch(checkout, tools).returncode == 0
    assert installations(checkout) == 2


def test_an_interrupted_set_up_is_resumed(checkout: Path, tools: Path, tmp_path: Path) -> None:
    provide_programs(checkout, tools)
    reached, never = tmp_path / "reached", tmp_path / "never"
    os.mkfifo(reached)
    os.mkfifo(never)
    hanging = FAKE_PYTHON.replace('"-m pip") ', HANGING_PIP.format(never=never, reached=reached))
    write_program(tools / "python3", hanging)
    process = subprocess.Popen([checkout / "trellis"], env={"PATH": str(tools)}, start_new_session=True)
    reached.read_text()  # until pip has started
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=300) != 0
    Path(f"{never}.done").touch()
    result = launch(checkout, tools)
    assert result.returncode == 0, result.stderr
    assert installations(checkout) == 1


READ_ONLY = """
mount --make-rprivate /; mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"
shift
exec env "$@"
"""


@pytest.mark.root
def test_a_read_only_checkout_works_once_it_is_set_up_and_says_what_is_missing(checkout: Path, tools: Path) -> None:
    """Root, too, is refused there, and would be told by mkdir alone."""
    provide_programs(checkout, tools)

    def launch_read_only(verb: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "--mount", "sh", "-ec", READ_ONLY, "sh", str(checkout), f"PATH={tools}"]
        return subprocess.run([*command, str(checkout / "trellis"), verb], capture_output=True, text=True, check=False)

    refused = launch_read_only("plan")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "is not set up" in refused.stderr
    assert f"{checkout}/trellis --help" in refused.stderr
    launch(checkout, tools, "plan")
    assert launch_read_only("plan").stdout.splitlines()[-1] == "plan"
    assert f"{checkout}/trellis bench --help" in launch_read_only("bench").stderr


def test_two_first_uses_at_once_install_once(checkout: Path, tools: Path) -> None:
    provide_programs(checkout, tools)
    both = [subprocess.Popen([checkout / "trellis"], env={"PATH": str(tools)}) for _ in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    assert installations(checkout) == 1


def test_without_apt_the_missing_packages_are_named(checkout: Path, tools: Path) -> None:
    result = launch(checkout, tools)
    assert result.returncode == 1
    assert "no apt-get found" in result.stderr
    assert not (checkout / ".venv").exists()


def test_without_the_right_to_install_the_commands_are_printed(checkout: Path, tools: Path) -> None:
    (tools / "id").unlink()
    write_program(tools / "id", "#!/bin/sh\necho 1000\n")
    write_program(tools / "sudo", "#!/bin/sh\nexit 1\n")
    write_program(tools / "apt-get", "#!/bin/sh\nexit 99\n")
    write_program(tools / "apt-cache", '#!/bin/sh\n[ "$2" != openjdk-17-jre-headless ]\n')
    (checkout / "harness/setup/programs.txt").write_text(
        "gadget gadget-package run what for\njava openjdk-17-jre-headless,openjdk-21-jre-headless run Spark\n"
        "scope scope-package bench what for\n"
    )
    result = launch(checkout, tools)
    assert result.returncode == 1
    assert f"sudo sh {checkout}/harness/setup/system.sh run" in result.stderr
    assert re.search(
        r"apt-get install --no-install-recommends gadget-package openjdk-21-jre-headless *\n", result.stderr
    )
    assert "scope-package" not in result.stderr
    assert not (checkout / ".venv").exists()


def test_an_old_python_is_not_used(checkout: Path, tools: Path) -> None:
    provide_programs(checkout, tools)
    write_program(tools / "python3", "#!/bin/sh\nexit 1\n")
    write_program(tools / "apt-cache", "#!/bin/sh\necho 'Version: 3.10.6-1'\n")
    assert "python3.11-venv" in launch(checkout, tools).stderr
    write_program(tools / "python3.12", FAKE_PYTHON)
    assert launch(checkout, tools).returncode == 0


# ---------------------------------------------------------------------------------------------- system packages

FAKE_APT = """#!/bin/sh
# Installs a package that starts and enables a service in all the ways there are.
[ "$1" = install ] || exit 0
printf '%s ' "$@" >"$DPKG_ROOT/asked"
sh "$DPKG_ROOT/usr/sbin/policy-rc.d" daemon start; echo $? >"$DPKG_ROOT/policy-said"
cd "$DPKG_ROOT/etc"
ln -s /lib/daemon.service systemd/system/multi-user.target.wants/daemon.service
ln -s /lib/daemon.service systemd/system/daemon-alias.service
ln -s ../init.d/daemon rc2.d/S01daemon
[ ! -e "$DPKG_ROOT/kill" ] || kill -KILL "$PPID"
[ ! -e "$DPKG_ROOT/fail" ]
"""
FAKE_UPDATE_RC = """#!/bin/sh
[ "$2" = disable ] && mv "$DPKG_ROOT/etc/rc2.d/S01$1" "$DPKG_ROOT/etc/rc2.d/K01$1"
"""


@pytest.fixture
def machine(tmp_path: Path, tools: Path) -> Path:
    """A root folder of a machine with a service of its own, and an apt-get for it."""
    root = tmp_path / "machine"
    for folder in ("usr/sbin", "etc/systemd/system/multi-user.target.wants", "etc/rc2.d"):
        (root / folder).mkdir(parents=True)
    (root / "etc/systemd/system/multi-user.target.wants/own.service").symlink_to("/lib/own.service")
    (root / "etc/rc2.d/S01own").symlink_to("../init.d/own")
    write_program(tools / "apt-get", FAKE_APT)
    write_program(tools / "apt-cache", "#!/bin/sh\n")
    write_program(tools / "dpkg", "#!/bin/sh\n")
    write_program(tools / "update-rc.d", FAKE_UPDATE_RC)
    return root


def install(checkout: Path, tools: Path, machine: Path) -> int:
    (checkout / "harness/setup/programs.txt").write_text("gadget gadget-package run what for\n")
    command = ["sh", checkout / "harness/setup/system.sh", "run"]
    env = {"PATH": str(tools), "DPKG_ROOT": str(machine)}
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode


def services(machine: Path) -> list[str]:
    links = [*machine.glob("etc/systemd/system/**/*"), *machine.glob("etc/rc2.d/S*")]
    return sorted(link.name for link in links if link.is_symlink())


def leftovers(machine: Path) -> list[Path]:
    return [*machine.glob("usr/sbin/*"), *machine.glob("var/lib/trellis-setup")]


def test_no_service_is_started_or_left_enabled(checkout: Path, tools: Path, machine: Path) -> None:
    assert install(checkout, tools, machine) == 0
    assert (machine / "asked").read_text().split()[-1] == "gadget-package"
    assert "--no-install-recommends" in (machine / "asked").read_text()
    assert (machine / "policy-said").read_text() == "101\n"
    assert services(machine) == ["S01own", "own.service"]
    assert leftovers(machine) == []


def test_the_machines_own_policy_returns(checkout: Path, tools: Path, machine: Path) -> None:
    policy = machine / "usr/sbin/policy-rc.d"
    write_program(policy, "#!/bin/sh\nexit 0 # own\n")
    assert install(checkout, tools, machine) == 0
    assert (machine / "policy-said").read_text() == "101\n"
    assert policy.read_text().endswith("# own\n")


def test_a_failed_installation_is_put_right_and_reported(checkout: Path, tools: Path, machine: Path) -> None:
    (machine / "fail").touch()
    assert install(checkout, tools, machine) == 1
    assert services(machine) == ["S01own", "own.service"]
    assert leftovers(machine) == []


def test_a_killed_installation_is_put_right_by_the_next(checkout: Path, tools: Path, machine: Path) -> None:
    policy = machine / "usr/sbin/policy-rc.d"
    write_program(policy, "#!/bin/sh\nexit 0 # own\n")
    (machine / "kill").touch()
    assert install(checkout, tools, machine) == -signal.SIGKILL
    assert "daemon.service" in services(machine)
    (machine / "kill").unlink()
    write_program(tools / "gadget", "#!/bin/sh\n")  # nothing is missing any more, and still there is something to do
    assert install(checkout, tools, machine) == 0
    assert services(machine) == ["S01own", "own.service"]
    assert policy.read_text().endswith("# own\n")
    assert leftovers(machine) == [policy]


# ---------------------------------------------------------------------------------------------------- packaging


def test_the_lock_has_every_dependency_with_hashes_and_names_no_host() -> None:
    import tomllib

    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [name for extra in project["optional-dependencies"].values() for name in extra]
    text = LOCK.read_text()
    pins = re.findall(r"^([a-z0-9-]+)==\S+(?: ; [^\\\n]+)? \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(pins) == text.count("==") - text.count("_name == ") - text.count("_platform == ")
    for requirement in wanted:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name is not None
        assert name[0].lower().replace("_", "-") in pins
    assert "setuptools" in pins, "it builds PySpark (harness/setup/venv.sh)"
    assert "://" not in text
    assert "index" not in text


@pytest.mark.slow
def test_the_wheel_has_everything_that_lies_beside_the_code(tmp_path: Path) -> None:
    from zipfile import ZipFile

    listed = subprocess.run(
        ["git", "ls-files", "peer", "topologies", "harness", "metrics"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    source = tmp_path / "source"
    for name in [*listed, "pyproject.toml", "README.md", "LICENSE"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (CHECKOUT / name).exists():
            shutil.copy(CHECKOUT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source]
    subprocess.run(build, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("trellis_testbed-*.whl")
    contents = ZipFile(wheel).namelist()
    assert set(listed) <= set(contents)
    assert any(name.endswith("entry_points.txt") for name in contents)
