"""What a cluster's executors are given, and what is said of workers that cannot analyse a run."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from harness.cli import main
from harness.errors import ExperimentError
from harness.stages.analysis import add_master_arguments, executor_options
from metrics.executors import shares_files
from metrics.executors.cluster import ExecutorOptions, WorkersError, check_master, parse_memory, require_workers

MASTER = "spark://somewhere:7077"

OF_JAVA = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 0.0 (TID 7) (127.0.0.1 executor 0): java.io.IOException: Cannot run program \
"/no/such/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\t... 20 more

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:4568)
"""

OF_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/python/pyspark.zip/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
  File "trellis_0123.zip/metrics/storage/paths.py", line 5, in f
    raise ValueError: no
ModuleNotFoundError: No module named 'pyarrow'
"""


class Workers:
    """An executor whose tasks are changed before they are called."""

    description = ""
    workers = 2

    def __init__(self, change: Callable[[Callable[[int], Any], int], Any] = lambda task, item: task(item)) -> None:
        self.change = change

    def map(self, task: Callable[[int], Any], items: Sequence[int]) -> list[Any]:
        return [self.change(task, item) for item in items]


def options(*argv: str) -> ExecutorOptions:
    parser = argparse.ArgumentParser()
    add_master_arguments(parser)
    return executor_options(parser.parse_args(argv))


def test_defaults_leave_python_the_memory_of_a_task_per_core() -> None:
    assert ExecutorOptions().settings() == {
        "spark.executor.memory": "1024m",
        "spark.executor.memoryOverhead": "2048m",
    }
    assert ExecutorOptions(cores=4).settings() == {
        "spark.executor.cores": "4",
        "spark.executor.memory": "1024m",
        "spark.executor.memoryOverhead": "8192m",
    }


@pytest.mark.parametrize(("memory", "heap"), [("1g", 512), ("1536m", 768), ("2g", 1024), ("16G", 1024)])
def test_memory_is_that_of_java_and_python_together(memory: str, heap: int) -> None:
    given = options(f"--master={MASTER}", f"--executor-memory={memory}").settings()
    assert given["spark.executor.memory"] == f"{heap}m"
    assert given["spark.executor.memoryOverhead"] == f"{parse_memory(memory) - heap}m"


def test_settings_of_the_user_go_before_ours() -> None:
    given = options(f"--master={MASTER}", "--conf=spark.executor.memory=3g", "--conf", "spark.driver.extra=a=b")
    found = given.settings()
    assert (found["spark.executor.memory"], found["spark.driver.extra"]) == ("3g", "a=b")
    assert found["spark.executor.memoryOverhead"] == "2048m"
    assert json.decode(json.encode(given), type=ExecutorOptions) == given, "the analysis is another process"


@pytest.mark.parametrize("text", ["", "spark.a", "executor.memory=1g", "=1"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="expected a setting of Spark"):
        options(f"--master={MASTER}", f"--conf={text}")


@pytest.mark.parametrize("text", ["", "4", "g", "4t", "-4g", "1023m", "1.5g", "4gb"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="expected a size of at least 1g"):
        options(f"--master={MASTER}", f"--executor-memory={text}")


@pytest.mark.parametrize("master", [[], ["--master=here"], ["--master=local[4]"]])
@pytest.mark.parametrize(
    "option", ["--executor-memory=4g", "--executor-cores=2", "--executor-python=/p", "--conf=spark.a=1"]
)
def test_options_of_clusters_need_one(master: list[str], option: str) -> None:
    with pytest.raises(ExperimentError, match="name one with --master"):
        options(*master, option)


def test_a_connect_server_has_its_own_executors() -> None:
    with pytest.raises(ExperimentError, match="the server's own"):
        options("--master=sc://host:15002", "--executor-cores=2")


@pytest.mark.parametrize(
    "master",
    ["here", "local", "local[4]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", "spark://a:1,b:2",
     "k8s://https://host:6443", "sc://host", "sc://host:15002", "sc://host:15002/;use_ssl=true"],
)  # fmt: skip
def test_masters_of_known_forms_are_accepted(master: str) -> None:
    assert check_master(master) == master


@pytest.mark.parametrize(
    "master",
    [
        "",
        "foo",
        "Here",
        "local[",
        "local[x]",
        "spark://",
        "spark://host",
        "host:7077",
        "local-cluster",
        "k8s://",
        "sc://",
        "sc://host:",
    ],
)
@pytest.mark.parametrize("verb", ["report", "tables", "run", "sweep"])
def test_other_masters_are_refused_before_any_work(master: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "no-such-file", f"--master={master}"]) == 2
    forms = "'here', 'local[*]', spark://HOST:PORT, sc://HOST:PORT, k8s://URL or yarn"
    expected = f"trellis {verb}: --master: expected {forms}, got"
    printed = capsys.readouterr().err
    assert printed == f"{expected} '{master}'; try: trellis {verb} --help\n"


def test_less_than_one_core_is_refused() -> None:
    with pytest.raises(ExperimentError, match="at least 1"):
        options(f"--master={MASTER}", "--executor-cores=0")


@pytest.mark.parametrize(
    ("master", "shares"),
    [
        (None, True),
        ("here", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        (MASTER, False),
        ("yarn", False),
    ],
)
def test_tasks_on_this_machine_see_its_files(master: str | None, shares: bool) -> None:
    assert shares_files(master) is shares


def test_workers_that_see_the_folder_and_write_to_it_are_fine(tmp_path: Path) -> None:
    require_workers(Workers(), MASTER, tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == [], "nothing is left of the question"


def blind(task: Callable[[int], Any], item: int) -> Any:
    marker, content = task.args  # type: ignore[attr-defined]
    return task.func(marker.with_name("elsewhere") if item else marker, content, item)  # type: ignore[attr-defined]


def forgetful(task: Callable[[int], Any], item: int) -> Any:
    """What this worker writes stays where it is."""
    answer = task(item)
    if item:
        answer[2].unlink()
    return answer


def other(task: Callable[[int], Any], item: int) -> Any:
    """This worker has another file at the marker's path."""
    marker, content = task.args  # type: ignore[attr-defined]
    return task.func(marker, content[::-1] if item else content, item)  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", [blind, forgetful, other])
def test_one_worker_that_shares_no_files_is_enough_to_refuse(tmp_path: Path, change: Callable[..., Any]) -> None:
    with pytest.raises(WorkersError, match=r"do not see it at this path.*trellis copy RUN s3://"):
        require_workers(Workers(change), MASTER, tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (OF_JAVA, 'java.io.IOException: Cannot run program "/no/such/python": error=2, No such file or directory'),
        (OF_PYTHON, "ModuleNotFoundError: No module named 'pyarrow'"),
        ("what\nelse", "else"),
        ("", "RuntimeError"),
    ],
)
def test_workers_without_python_are_refused_with_the_cause(tmp_path: Path, said: str, cause: str) -> None:
    def fail(task: Callable[[int], Any], item: int) -> Any:
        raise RuntimeError(said)

    with pytest.raises(WorkersError) as caught:
        require_workers(Workers(fail), MASTER, tmp_path, tmp_path)
    assert f"no task runs on the workers of {MASTER}: {cause}; they need Python" in str(caught.value)
    assert "--executor-python" in str(caught.value)
    assert "\n" not in str(caught.value)
