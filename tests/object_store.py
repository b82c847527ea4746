"""An S3 server for tests: moto's, on loopback, in a process that ends with the test or with this one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metrics.rundir.files import RESULTS
from metrics.storage import StorePath, place
from metrics.store_results import publishing

BUCKET = "runs"

_SERVE = """
import sys

from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
"""What a client has in its environment; the server takes any keys."""


@contextmanager
def s3_server() -> Iterator[str]:
    """A server for the time of the block; yields its URL. It ends when its standard input does."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | KEYS,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            host, port = server.stdout.readline().split()
            yield f"http://{host}:{port}"
        finally:
            server.stdin.close()


def publish(results: Path, stored: StorePath) -> None:
    """Give a run in a store the results of an analysed one on this machine: an analysis there takes ten times as long.

    Args:
        results: the analysed run.
        stored: the run in the store.
    """
    with publishing(stored) as made:
        assert isinstance(made, Path), "a folder of this machine, which is then uploaded"
        for source in (results / name for name in RESULTS):
            if source.is_dir():
                shutil.copytree(source, made / source.name)
            elif source.exists():
                shutil.copyfile(source, made / source.name)


def make_bucket(name: str = BUCKET) -> StorePath:
    """Make a bucket of the server that ``AWS_ENDPOINT_URL`` names."""
    asking = place(f"s3://{name}?allow_bucket_creation=true")
    assert isinstance(asking, StorePath)
    asking.filesystem.create_dir(name)
    made = place(f"s3://{name}")
    assert isinstance(made, StorePath)
    return made
