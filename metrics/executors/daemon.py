"""The process of Spark on this machine that forks a Python worker for each task at a time.

It imports the kernels before it forks, so that no worker has to: that takes a second or more of each.

PySpark's own daemon imports nothing, since a module might start threads, which do not survive a fork. The kernels start
none when they are imported, and NumPy and pyarrow renew theirs in a forked process.
"""

import gc

import pyspark.worker  # noqa: F401 - the forked processes run it
from pyspark.daemon import manager

from metrics.executors import kernels  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # what is there stays: a collection in a worker neither looks at it nor copies its pages
    manager()
