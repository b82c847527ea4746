"""Sockets that are made for the peers of other hosts."""

import errno
import os
import socket
from pathlib import Path

import pytest

from peer.runtime.host_sockets import listen_at, make_in_host, make_tcp_socket


def test_a_namespace_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_in_host(str(tmp_path / "net"))


def test_a_listener_takes_connections_and_its_address_is_taken() -> None:
    with listen_at(("127.0.0.1", 0), 1, make_tcp_socket) as listener:
        with socket.create_connection(listener.getsockname()) as plug:
            accepted, source = listener.accept()
            accepted.close()
            assert source == plug.getsockname()
        made: list[socket.socket] = []

        def make() -> socket.socket:
            made.append(make_tcp_socket())
            return made[-1]

        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            listen_at(listener.getsockname(), 1, make)
        assert [plug.fileno() for plug in made] == [-1], "a socket that cannot listen is closed"
