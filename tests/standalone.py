"""A standalone Spark cluster for tests: a master and two workers of one core each, at two addresses of loopback.

It lives in a network namespace of its own without a way out, and ends with its processes.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
MASTER = "spark://127.0.0.1:7077"

_CLUSTER = """
set -e
ip link set lo up
export SPARK_HOME=$({python} -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)')
spark_class=$SPARK_HOME/bin/spark-class
export SPARK_DAEMON_JAVA_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
export SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON={python} SPARK_LOCAL_DIRS={work}/scratch
mkdir -p {work}/scratch {work}/tmp
export TMPDIR={work}/tmp
cd {work}
exec {{master}}< <($spark_class org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 7077 --webui-port 0 2>&1)
for worker in 1 2; do
  SPARK_LOCAL_IP=127.0.0.$worker unshare --mount bash -c '{hide}exec "$@"' - \
    $spark_class org.apache.spark.deploy.worker.Worker --host 127.0.0.$worker --webui-port 0 -c 1 -m 2g \
    -d {work}/worker$worker {url} > worker$worker.log 2>&1 &
done
grep --line-buffered -m 2 'Registering worker' <&$master
cat <&$master > /dev/null &
exec {{master}}<&-
PYTHONPATH={root} "$@"
"""


def run_on_cluster(work: Path, argv: Sequence[str], hidden: Path | None = None) -> str:
    """Run a program beside a cluster, and return what it printed.

    Args:
        work: where the cluster keeps its files.
        argv: the program, whose master is ``MASTER``.
        hidden: a folder that workers do not see: they have another one, empty, at its path.

    Raises:
        AssertionError: the program failed; says what it printed at last.
    """
    hide = "" if hidden is None else f"mount -t tmpfs nothing {hidden}; "
    script = _CLUSTER.format(python=sys.executable, work=work, root=ROOT, hide=hide, url=MASTER)
    isolated = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [*isolated, "bash", "-c", script, "-", *argv],
        check=False,
        timeout=600,
        capture_output=True,
        text=True,
        env=environment | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
