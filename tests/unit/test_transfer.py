"""What of a machine's files is moved home."""

from pathlib import Path

from harness.deployment.archive import move_files


def test_regular_files_are_moved_and_nothing_else(tmp_path: Path) -> None:
    folder, home, secret = tmp_path / "work", tmp_path / "run", tmp_path / "secret"
    (folder / "trace" / "deeper").mkdir(parents=True)
    (home / "logs").mkdir(parents=True)
    (home / "logs/agent.log").touch()
    secret.mkdir()
    (secret / "0.log").touch()
    (folder / "trace/0.jsonl").write_text("zero")
    (folder / "trace/1.jsonl").symlink_to(secret / "0.log")
    (folder / "logs").symlink_to(secret)
    (folder / "exits.jsonl").write_text("ended")
    (folder / "other").touch()
    (folder / "hosts").symlink_to(secret)
    (secret / "web").mkdir()
    (secret / "web/sh.stdout").touch()
    names = ["trace/0.jsonl", "trace/1.jsonl", "trace/deeper", "logs/0.log", "record/0.msgpack", "hosts/web/sh.stdout"]
    move_files(folder, {name: name for name in names} | {"exits.jsonl": "exits-m.jsonl"}, home)
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*")) == [
        "exits-m.jsonl", "logs", "logs/agent.log", "trace", "trace/0.jsonl"
    ]  # fmt: skip
    assert ((home / "trace/0.jsonl").read_text(), (home / "exits-m.jsonl").read_text()) == ("zero", "ended")
    assert (secret / "0.log").exists()
