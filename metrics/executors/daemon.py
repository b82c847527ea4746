"""The process of Spark on this machine that forks a Python worker for each task that runs at a time.

It imports the kernels before it forks, so that no worker must import them, which takes each a second or more.

PySpark's own daemon imports nothing, since a module might start threads, which do not survive a fork. The kernels start
no threads when they are imported, and NumPy and pyarrow renew their own in a forked process.
"""

import gc

import pyspark.worker  # noqa: F401 - the forked processes run it
from pyspark.daemon import manager

from metrics.executors import kernels  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # collections in workers then neither look at existing objects nor copy their pages
    manager()
