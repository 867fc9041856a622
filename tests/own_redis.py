"""A Redis server that a test may mistreat."""

import socket
import subprocess
from pathlib import Path
from typing import Self

import redis

from tests.conftest import until


class OwnRedis:
    """A Redis server on a free port of loopback, which can be stopped and started again."""

    def __init__(self, program: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._folder = folder
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Return when it answers."""
        words = f"--bind 127.0.0.1 --port {self._port} --appendonly no --dir {self._folder}"
        command = [self._program, *words.split(), "--save", ""]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(self._answers)

    def stop(self) -> None:
        """At once, and forgetting everything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False
