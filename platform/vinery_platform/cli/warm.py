"""The processes that services and servers of worker processes are forked from.

`python -m vinery_platform.cli.warm FD` begins without secrets, and forks the servers of worker
processes. Its child has the environment and Django, and forks the services. Without them, such as
while they start or on another system, each process starts as a program.
"""

import asyncio
import fcntl
import gc
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

from vinery_platform.processes.supervisor import START_LIMIT_S
from vinery_serving.processes import forks, parent
from vinery_serving.processes.child import ChildProcess, environment_with
from vinery_serving.processes.forks import Forks

_READY: Final = b"ready"
_MAX_BYTES: Final = 1 << 18
# The command line begins so long, for those that forks show.
_ROOM: Final = 240
# By default each thread of glibc keeps freed memory for itself.
FEW_ARENAS: Final = {"MALLOC_ARENA_MAX": "2"}
# Above the descriptors of services.
_HIGH: Final = 200
_STDOUT: Final = 1


class WarmProcess:
    """The side of the supervisor, in its event loop."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """The environment is the one of services."""
        self._environment = json.dumps(dict(environment)).encode()
        self._process: ChildProcess | None = None
        self._control: socket.socket | None = None
        self._forks: Forks | None = None
        self._again: asyncio.Task[None] | None = None

    @property
    def pids(self) -> set[int]:
        return set() if self._process is None else {self._process.pid}

    async def begin(self) -> None:
        """Start it anew, with the code and the settings of now, and wait until it can fork."""
        await self.end()
        if sys.platform != "linux":
            return
        self._control, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = ("-P", "-m", "vinery_platform.cli.warm", str(others.fileno()).zfill(_ROOM))
        paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
        environment = environment_with("TZ") | paths | FEW_ARENAS
        with others, suppress(OSError):
            self._process = ChildProcess(
                (sys.executable, *words), "warm", environment=environment, fds=(others.fileno(),)
            )
        with suppress(OSError, TimeoutError):
            self._control.send(self._environment)
            self._control.setblocking(False)
            async with asyncio.timeout(START_LIMIT_S):
                loop = asyncio.get_running_loop()
                if await loop.sock_recv(self._control, len(_READY)) == _READY:
                    self._forks = Forks(self._control)

    def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]
    ) -> int | None:
        """Return the id of a new child of this process; None: start a program instead."""
        pid = self._forks.fork(argv, environment, fds) if self._forks else None
        if self._forks and pid is None:  # it has ended, or stands still
            self._forks = None
            self._again = asyncio.create_task(self.begin())
        return pid

    async def end(self) -> None:
        self._forks = None
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            await self._process.end()
        self._process = self._control = None


# -- In the processes that fork


def run(control: socket.socket) -> int:
    from vinery_serving.gateway.reading import worker_jobs  # noqa: F401
    from vinery_serving.gateway.workers import fork_server

    parent.end_with(os.getppid())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()  # a collection would copy all pages that the processes share
    if os.fork() == 0:
        theirs.close()
        high = fcntl.fcntl(ours.detach(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
        forks.for_workers = Forks(socket.socket(fileno=high))
        return _run_services(control)
    ours.close()
    control.close()
    if argv := forks.serve(theirs):
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        sys.argv = argv[-2:]
        fork_server.main()
    return 0


def _run_services(control: socket.socket) -> int:
    parent.end_with(os.getppid())
    os.environ.update(json.loads(control.recv(_MAX_BYTES)))
    # These read the environment.
    from vinery_platform.cli import main
    from vinery_platform.cli.shape import importing, start_django
    from vinery_platform.config import env
    from vinery_platform.config.env import SettingError

    try:
        with importing():
            start_django()
            import_module(f"vinery_platform.processes.{env.choice('VINERY_SERVER')}_server")
            import_module("vinery_platform.asgi")
    except SettingError:  # services report it
        return 1
    control.send(_READY)
    if argv := forks.serve(control):
        parent.signal_at_its_end(0)
        sys.argv = argv[argv.index("-m") + 1 :]
        return int(main())  # type: ignore[no-untyped-call]
    return 0


if __name__ == "__main__":
    sys.exit(run(socket.socket(fileno=int(sys.argv[1]))))
