"""Starts `edge_application` in a process, and speaks raw HTTP with the application."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from tests.conftest import clean_environment, until

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class EdgeServer:
    port: int
    process: psutil.Process

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=_TIMEOUT_S)

    def exchange(self, *parts: bytes) -> bytes:
        """Send these bytes on a new connection, and read until the server closes it."""
        with self.connect() as connection:
            send(connection, *parts)
            return read_to_end(connection)

    def num_refused(self, reason: str) -> int:
        answer = self.exchange(b"GET /refusals HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        number: int = json.loads(answer.partition(b"\r\n\r\n")[2])[reason]
        return number

    def memory_mb(self) -> float:
        return float(self.process.memory_info().rss) / 2**20


def send(connection: socket.socket, *parts: bytes) -> None:
    """Send as much as the server takes."""
    try:
        for part in parts:
            connection.sendall(part)
    except (BrokenPipeError, ConnectionResetError):
        pass


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the server closes the connection. Fails if the connection stays open for long."""
    read = b""
    try:
        while chunk := connection.recv(65536):
            read += chunk
    except ConnectionResetError:
        pass
    return read


def read_answer(connection: socket.socket) -> bytes:
    """Read one answer with a length. Returns the body."""
    read = b""
    while b"\r\n\r\n" not in read:
        read += _more(connection)
    head, _, body = read.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    length = int(lengths[0].partition(b":")[2])
    while len(body) < length:
        body += _more(connection)
    return body


def _more(connection: socket.socket) -> bytes:
    chunk = connection.recv(65536)
    assert chunk, "the server closed the connection"
    return chunk


def status_of(answer: bytes) -> int:
    """The status of the first answer; 0 without one."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0


@contextmanager
def run_edge_server(**limits: object) -> Iterator[EdgeServer]:
    command = [sys.executable, "-m", "tests.platform_.edge_application", json.dumps(limits)]
    process = subprocess.Popen(
        command, env=clean_environment(), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        running = EdgeServer(int(process.stdout.readline()), psutil.Process(process.pid))
        until(lambda: running.num_refused("connections") == 0)
        yield running
    finally:
        process.terminate()
        try:
            process.wait(_TIMEOUT_S)
        finally:
            process.kill()
