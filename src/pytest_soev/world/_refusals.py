"""What an event loop can do that no schedule can decide."""

from __future__ import annotations

import asyncio
from typing import Any

from pytest_soev.world._errors import OutsideError


def _refused(what: str) -> Any:
    """Make a method that raises at once."""

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise OutsideError(what)

    return refuse


class Refusals(asyncio.AbstractEventLoop):
    """An event loop that refuses sockets, pipes, subprocesses, signals and the like."""

    add_reader = _refused("file descriptor to wait for")
    add_writer = _refused("file descriptor to wait for")
    remove_reader = _refused("file descriptor to wait for")
    remove_writer = _refused("file descriptor to wait for")
    add_signal_handler = _refused("signal")
    remove_signal_handler = _refused("signal")
    connect_accepted_socket = _refused("socket")
    connect_read_pipe = _refused("pipe")
    connect_write_pipe = _refused("pipe")
    create_connection = _refused("socket")
    create_datagram_endpoint = _refused("socket")
    create_server = _refused("socket")
    create_unix_connection = _refused("socket")
    create_unix_server = _refused("socket")
    getaddrinfo = _refused("host name to look up")
    getnameinfo = _refused("host name to look up")
    sendfile = _refused("socket")
    sock_accept = _refused("socket")
    sock_connect = _refused("socket")
    sock_recv = _refused("socket")
    sock_recv_into = _refused("socket")
    sock_recvfrom = _refused("socket")
    sock_recvfrom_into = _refused("socket")
    sock_sendall = _refused("socket")
    sock_sendfile = _refused("socket")
    sock_sendto = _refused("socket")
    start_tls = _refused("socket")
    subprocess_exec = _refused("subprocess")
    subprocess_shell = _refused("subprocess")
    set_default_executor = _refused("thread pool: jobs run inline")
    run_forever = _refused("loop that goes on for ever: use `run_until_complete`")
    stop = _refused("loop that stops half way: end the scenario")
