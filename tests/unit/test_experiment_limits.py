"""Experiments with absurd numbers, depths and files: refused at once in one line, or valid; never a traceback."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness.cli import main
from harness.experiment.form import Experiment
from peer.protocols.registry import PROTOCOLS
from tests.examples import long_unless

GOOD = 'name = "x"\ntestbed = "simulated"\n[underlay]\nhosts = 3\n[random]\ndegree = 1\n'

FILES = {
    "long_integer": ("seed = " + "1" * 5000, ": expected integers of at most 64 bits, got one of more than 4,300"),
    "long_hexadecimal": (
        "seed = 0x" + "f" * 5000,
        ": $.seed: expected an integer of at most 64 bits, got one of 2",
    ),
    "no_program": ('[peer]\ncommand = [""]', ": $.peer.command[0]: expected the program's name, got ''"),
    "long_in_list": ("[peer]\ncommand = [0x" + "f" * 5000 + "]", ": $.peer.command[0]: expected an integer of at most"),
    "long_unknown": ("x = 0x" + "f" * 5000, ": $.x: expected an integer of at most 64 bits"),
    "deep_list": ("x = " + "[" * 5000 + "]" * 5000, ": nested too deeply: expected at most 32"),
    "deep_key": (".".join("a" * 3000) + " = 1", ": nested too deeply"),
    "endless_key": (".".join("a" * 200_000) + " = 1", ": nested too deeply"),
    "endless_quoted_key": (".".join(['"a"'] * 200_000) + " = 1", ": nested too deeply"),
    "deep_section": ("x = " + "{a=" * 40 + "1" + "}" * 40, ": nested too deeply"),
    "null": ('description = "a\\u0000b"', ": $.description: expected a text without null characters"),
    "long_name": ("a" * 5000 + " = 1", f": $.{'a' * 57}...: unknown field"),
    "too_large": ("#" * (4 << 20), ": expected at most 4,194,304 bytes, got more"),
}

OVERRIDES = {
    "long_integer": (
        "underlay.hosts=" + "1" * 5000,
        f"--set underlay.hosts={'1' * 42}...: expected integers of",
    ),
    "deep_list": ("x=" + "[" * 5000, f"--set x={'[' * 55}...: nested too deeply"),
    "deep_key": (".".join("a" * 3000) + "=1", "nested too deeply"),
    "control": ('x="\x1b', '--set x="\ufffd: expected a TOML value'),
    "not_utf8": ('description="\udcff"', "expected UTF-8 text"),
    "tiny_rate": (
        "workload.publish_rate_per_s=1e-300",
        "--set workload.publish_rate_per_s=1e-300: expected a number >= 1e-09",
    ),
    "huge_rate": ("workload.publish_rate_per_s=1e300", "expected at most 5000000 messages, got 3e+301 in 30 s"),
    "instant": ("churn.flash_at_s=1e300", "--set churn.flash_at_s=1e300: expected a number >= -604800 and <= 1209600"),
    "refresh": ("membership.refresh_s=1e-300", "--set membership.refresh_s=1e-300: expected a number >= 0.001"),
    "scrape": ("prometheus.scrape_interval_s=1e300", "expected a number >= 1 and <= 604800"),
    "rate up": ("underlay.up_mbit=1e-9", "--set underlay.up_mbit=1e-9: expected 0 or at least 0.001, got 1e-09"),
    "queue": ("underlay.queue_ms=1e308", "--set underlay.queue_ms=1e308: expected a number >= 0.001 and <= 60000"),
    "access_rate": (
        "underlay.rate_mbit=1e-300",
        "--set underlay.rate_mbit=1e-300: expected 0 or at least 0.001, got 1e-300",
    ),
    "unknown_home": (
        "underlay={kind = 'matrix', path = '~nobody-of-this-name/x'}",
        "~nobody-of-this-name/x: ",
    ),
}


def assert_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert problem in captured.err


@pytest.mark.parametrize("case", FILES)
def test_absurd_files_are_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, problem = FILES[case]
    file = tmp_path / "x.toml"
    file.write_text(f'name = "x"\n{text}\n')
    assert_refused(capsys, ["check", str(file)], f"trellis check: {file}{problem}")


@pytest.mark.parametrize("case", OVERRIDES)
def test_absurd_overrides_are_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    override, problem = OVERRIDES[case]
    file = tmp_path / "x.toml"
    file.write_text(GOOD)
    assert_refused(capsys, ["check", str(file), "--set", override], problem)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert main(["check", str(tmp_path / "x.toml")]) == 0


@pytest.mark.parametrize(
    "settings",
    [
        'underlay.kind="matrix" underlay.path',
        'interests.kind="file" interests.path',
        'interests.kind="follower-graph" workload.topics=3 interests.path',
        'churn.kind="sessions" churn.path',
        'underlay.kind="wondernetwork" underlay.path',
        'testbed="remote" inventory',
    ],
)
def test_no_file_makes_a_check_wait(settings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.toml").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe")
    options = [word for setting in settings.split() for word in ("--set", setting)]
    for path, problem in (("pipe", "a pipe"), ("/dev/zero", "a character device")):
        arguments = ["check", str(tmp_path / "x.toml"), *options[:-1], f'{options[-1]}="{path}"']
        assert_refused(capsys, arguments, f"{tmp_path / path}: expected a regular file, got {problem}")
    for path, problem in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a character device")):
        assert_refused(capsys, ["check", str(path)], f"trellis check: {path}: expected a regular file, got {problem}")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ["interests.ratio=1", "workload.topics=100000", "underlay.hosts=10000", "underlay.kind=uniform"],
            "$.interests: expected at most 10000000 subscriptions of 10000 instances of nodes, got 1000000000",
        ),
        (
            ["interests.kind=popularity", "interests.subscriptions_max=90000", "workload.topics=100000"],
            "$.interests: expected at most 10000000 subscriptions of 300 instances of nodes, got 13501500",
        ),
        (
            ["interests.kind=grid", "interests.copies_max=10000", "workload.topics=100000"],
            "--set interests.copies_max=10000: expected at most 10000000 copies of topics, got 102",
        ),
        (
            ["churn.kind=exponential", "churn.on_s=0.01", "workload.topics=1000"],
            "$.interests: expected at most 10000000 subscriptions of 912300 instances of nodes, got 182460000",
        ),
        (
            ["workload.rate_exponent=1", "workload.topics=100000", "workload.publish_rate_per_s=1000"],
            "--set workload.rate_exponent=1: expected at most 2000000000 random numbers (messages x topics)",
        ),
        (
            ["workload.topics=300", "workload.topics_per_message=255", "workload.publish_rate_per_s=2000"],
            "--set workload.topics_per_message=255: expected at most 10000000 topics of messages, got 15300000",
        ),
    ],
)
def test_what_would_take_too_long_to_draw_is_refused(
    settings: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.toml").write_text(GOOD.replace("hosts = 3", "hosts = 300"))
    options = [word for setting in settings for word in ("--set", setting)]
    assert_refused(capsys, ["check", str(tmp_path / "x.toml"), *options], problem)


def _numbers(kind: msgspec.inspect.Type, path: str = "") -> Iterator[str]:
    """Yield the keys of a form that take a number."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for part in kind.types:
            yield from _numbers(part, path)
    elif isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield from _numbers(field.type, f"{path}.{field.encode_name}".removeprefix("."))
    elif isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        yield path


NUMBERS = sorted(set(_numbers(msgspec.inspect.type_info(Experiment))))


@pytest.mark.slow
@pytest.mark.parametrize("number", long_unless({"-1e308"}, ["5e-324", "1e308", "-1e308", "9223372036854775807"]))
def test_every_number_may_be_absurd(number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With each key alone: the check ends at once, without a warning, and refuses or accepts in one line."""
    file = tmp_path / "x.toml"
    file.write_text(GOOD)
    # These say how much is drawn; what the limits allow takes seconds.
    skipped = {"workload.duration_s", "workload.warmup_s", "workload.cooldown_s", "underlay.hosts"}
    assert len(NUMBERS) > 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for key in [key for key in NUMBERS if key not in skipped]:
            protocol = key.split(".")[0].replace("_", "-")
            options = ["--set", f"protocol={protocol}"] if protocol in PROTOCOLS else []
            status = main(["check", str(file), *options, "--set", f"{key}={number}"])
            captured = capsys.readouterr()
            assert status in (0, 2), key
            remarks = [line for line in captured.out.splitlines() if ": remark: " in line]
            assert (captured.out + captured.err).count("\n") == 1 + len(remarks), key
            assert len(captured.err) < 500, key
