"""Relays of hosts on addresses of loopback, in processes of their own."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.engine import KEY
from vinery_serving.cluster.authority import Certificates, Role, host_fingerprint
from vinery_serving.cluster.relay import note_hosts
from vinery_serving.transport.handshake import socket_key
from vinery_serving.transport.relayed import Key
from vinery_serving.transport.sockets import EngineAddress, TlsAddress, engine_socket

AUTHORITY = b"the secret key of the installation"
WEB_HOST, NODE_HOST = "the key of the first host", "the key of the second host"
ENGINE = EngineAddress(7, "0123456789ab", 0)

# What this module imports takes a busy machine longer than all that a relay needs.
_RUN = """
import os, socket, sys
from pathlib import Path
import uvloop
from vinery_serving.cluster.authority import Certificates, Role
from vinery_serving.cluster.relay import Relay

async def run():
    authority, key = map(os.fsencode, sys.argv[3:5])
    certificates = Certificates([authority], sys.argv[5], Role.NODE)
    relay = Relay(Path(sys.argv[1]), key, certificates)
    print("serves", flush=True)
    await relay.run(socket.socket(fileno=int(sys.argv[2])))

uvloop.run(run())
"""


def web_key(authority: bytes = AUTHORITY, host: str = WEB_HOST, role: Role = Role.WEB) -> Key:
    return Certificates([authority], host, role).context


class Host:
    """A relay, and the sockets of its engines."""

    def __init__(self, run_dir: Path, address: str = "127.0.0.2") -> None:
        self.run_dir = run_dir
        self.address = address
        self.know(WEB_HOST)

    def know(self, *host_keys: str) -> None:
        note_hosts(self.run_dir, [host_fingerprint(each) for each in host_keys])

    def socket_of(self, engine: EngineAddress = ENGINE) -> Path:
        return engine_socket(self.run_dir, engine)

    def key_of(self, engine: EngineAddress = ENGINE) -> bytes:
        return socket_key(KEY, self.socket_of(engine))

    def engine(self, engine: EngineAddress = ENGINE) -> TlsAddress:
        return TlsAddress(self.address, self.port, host_fingerprint(NODE_HOST), engine)

    async def start(self, port: int = 0) -> None:
        listener = socket.create_server((self.address, port))
        self.port = listener.getsockname()[1]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _RUN, str(self.run_dir), str(listener.fileno())),
            *(AUTHORITY, KEY, NODE_HOST),
            pass_fds=[listener.fileno()],
            stdout=subprocess.PIPE,
        )
        listener.close()
        # A test's deadline begins when the relay has begun, however long its process took to start.
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"serves\n"

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """All is quiet, as if the host had lost its power."""
        os.kill(self.pid, signal.SIGSTOP)

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def running(run_dir: Path) -> AsyncIterator[Host]:
    host = Host(run_dir)
    await host.start()
    try:
        yield host
    finally:
        await host.kill()
