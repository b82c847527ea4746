"""Reads back the matrices that tests write."""

from pathlib import Path

from topologies.importers.matrix import read_matrix_file
from topologies.model import Matrix


def read_matrix(path: Path) -> tuple[list[str], Matrix]:
    """The hosts' names and the (n, n) matrix of a file."""
    read = read_matrix_file(path)
    return read.names, read.delay_ms
