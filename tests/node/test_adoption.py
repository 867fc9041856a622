"""A node finds engines of a dead node, and keeps engines that the node would start itself."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.conftest import REPOSITORY, clean_environment
from tests.engine.conftest import TIMEOUT_S, OwnGateway, engine_config, serving
from tests.fakes.engine import HELLO, KEY
from vinery_serving.engine.config import EngineConfig
from vinery_serving.node import adoption, engine_process
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.node.engine_process import END_TIMEOUT_S, EngineDied, EngineProcess, with_digest
from vinery_serving.transport.handshake import socket_key
from vinery_serving.transport.sockets import EngineAddress, engine_socket

ADDRESS = EngineAddress(7, "0123456789ab")
# Listens as an engine does, sends a first message, and prints what it got.
_LISTENING = """
import sys
from pathlib import Path
from vinery_serving.transport.server import SocketServer, bound
from vinery_serving.transport.handshake import socket_key
from tests.fakes.engine import HELLO, KEY
path = Path(sys.argv[1])
server = SocketServer(bound(path), socket_key(KEY, path), lambda: HELLO)
print("listening", flush=True)
while True:
    for each in server.poll(60):
        print(type(each.message).__name__, flush=True)
"""


@contextmanager
def listening(socket: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own group that listens on this socket."""
    process = subprocess.Popen(
        command or (sys.executable, "-c", _LISTENING, str(socket)),
        env=clean_environment(),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert next_line(process) == "listening"
        yield process
    finally:
        process.kill()
        process.communicate()


def a_stranger(socket: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    waiting = "import time; print('listening', flush=True); time.sleep(600)"
    return listening(socket, sys.executable, "-c", waiting)


def next_line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip()


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return engine_socket(tmp_path, ADDRESS)


async def test_it_is_found_by_its_socket_until_it_ends(tmp_path: Path, socket: Path) -> None:
    with listening(socket) as process:
        found = adoption.find(tmp_path, KEY)[ADDRESS]
        assert found.pid == process.pid
        assert not found.has_ended
        assert await asyncio.wait_for(found.hello(), TIMEOUT_S) == HELLO
        assert next_line(process) == "Keep"
        assert adoption.find(tmp_path / "another home", KEY) == {}
        found.close()
        assert next_line(process) == "NoneType"  # the connection has ended

        found = adoption.find(tmp_path, KEY)[ADDRESS]
        process.kill()
        await asyncio.wait_for(found.wait(), TIMEOUT_S)
        assert found.has_ended
        found.close()

    assert adoption.find(tmp_path, KEY) == {}, "a socket without a process is no engine"


def test_the_supervisor_keeps_each_engine_and_adopts_none(tmp_path: Path, socket: Path) -> None:
    kept = adoption.KeptEngines(tmp_path, lambda: KEY)

    def get_to_know() -> None:
        kept.look()
        (connected,) = kept._kept.values()
        while not connected.handshake.is_done:
            assert select.select([connected.connection], [], [], TIMEOUT_S)[0]
            kept.look()
        kept.look()  # once is enough

    kept.look()
    with listening(socket) as engine:
        get_to_know()
        assert next_line(engine) == "Keep"
        engine.kill()
        engine.wait()
        kept.look()
        with listening(socket) as successor:
            get_to_know()
            assert next_line(successor) == "Keep"
            kept._kept.clear()  # as when the process dies
            assert next_line(successor) == "NoneType"


async def test_a_process_with_the_id_of_a_dead_engine_is_not_adopted(tmp_path, socket, monkeypatch):
    open_pidfd = os.pidfd_open
    accepting = _LISTENING.replace("server = ", "SocketServer._note_unknown = print\nserver = ")
    command = sys.executable, "-uc", accepting, str(socket)
    with listening(socket, *command) as engine, a_stranger(socket) as stranger:

        def die_first(_: int) -> int:
            next_line(engine)  # so the engine has sent something
            engine.kill()
            engine.wait()
            return open_pidfd(stranger.pid)

        monkeypatch.setattr(os, "pidfd_open", die_first)
        assert adoption.find(tmp_path, KEY) == {}
        assert stranger.poll() is None


async def test_no_signal_reaches_a_process_that_has_got_the_id_of_a_dead_engine(tmp_path, socket):
    with listening(socket) as engine, a_stranger(socket) as stranger:
        found = adoption.find(tmp_path, KEY)[ADDRESS]
        engine.kill()
        engine.wait()
        found.pid = stranger.pid
        found.send_signal(signal.SIGKILL)
        await found.end(END_TIMEOUT_S)

        assert stranger.poll() is None


async def test_an_engine_of_another_version_has_no_hello(tmp_path: Path, socket: Path) -> None:
    other = _LISTENING.replace("lambda: HELLO", "lambda: type('Hello', (Struct,), {}, tag=1)()")
    other = f"from msgspec import Struct\n{other}"
    with listening(socket, sys.executable, "-c", other, str(socket)):
        found = adoption.find(tmp_path, KEY)[ADDRESS]
        assert await asyncio.wait_for(found.hello(), TIMEOUT_S) is None
        found.close()


def test_a_digest_covers_configuration_environment_and_code(tmp_path, monkeypatch):
    def digest_of(environment: dict[str, str], **options: Any) -> str:
        return with_digest(engine_config(tmp_path, "e", options), environment).digest

    plain = digest_of({"PATH": "/bin"})
    assert plain == digest_of({"PATH": "/bin"})
    assert plain != digest_of({"PATH": "/usr/bin"})
    assert plain != digest_of({"PATH": "/bin"}, max_running=3)
    monkeypatch.setattr(engine_process, "_code", lambda: b"another version")
    assert plain != digest_of({"PATH": "/bin"})


# -- Real engines

Outlive = Callable[..., Any]


def found_config(run_dir: Path, options: dict[str, Any]) -> EngineConfig:
    """The configuration of an engine that listens where nodes look for engines."""
    config = engine_config(run_dir, "e", options)
    path = engine_socket(run_dir, ADDRESS)
    return structs.replace(config, socket_path=path, socket_key=socket_key(KEY, path))


@pytest.fixture
def outlived(tmp_path: Path) -> Outlive:
    """A serving engine of a dead node, as the next node finds it."""

    @asynccontextmanager
    async def start(**options: Any) -> AsyncIterator[tuple[OwnGateway, AdoptedEngine]]:
        async with serving(found_config(tmp_path, options)) as gateway:
            abandon(gateway.process)
            yield gateway, adoption.find(tmp_path, KEY)[ADDRESS]

    return start


def abandon(node: EngineProcess) -> None:
    """Do to the engine as the death of its node does."""
    engine: Any = node._engine
    engine.unwatch()
    engine.close_input()


@pytest.mark.live
async def test_a_stream_goes_on_when_it_is_adopted(outlived: Outlive, tmp_path: Path) -> None:
    async with outlived() as (gateway, found):
        submit = gateway.submit("Count to 60.", max_new_tokens=1500, ignore_eos=True)
        stream = gateway.start(submit)
        node = EngineProcess(found_config(tmp_path, {}))
        assert await node.adopt(found)
        assert node.pid == gateway.process.pid

        (answer,) = await gateway.finish(stream, submit)
        assert len(answer.tokens) == 1500
        os.kill(found.pid, signal.SIGKILL)
        with pytest.raises(EngineDied, match="ended"):
            await node.watch()
        await node.end()


@pytest.mark.live
async def test_an_engine_with_other_options_is_ended(outlived: Outlive, tmp_path: Path) -> None:
    async with outlived() as (gateway, found):
        node = EngineProcess(found_config(tmp_path, {"max_running": 3}))
        stream = gateway.start(gateway.submit("Count to 60.", max_new_tokens=2000, ignore_eos=True))

        assert not await node.adopt(found)
        assert found.has_ended
        assert node.pid is None
        stream.cancel({})


@pytest.mark.live
@pytest.mark.parametrize("is_adopted", [True, False])
async def test_an_engine_that_stands_still_ends_with_stacks(outlived, tmp_path, caplog, is_adopted):
    async with outlived() as (_, found), asyncio.timeout(TIMEOUT_S):
        node = EngineProcess(found_config(tmp_path, {}))
        if is_adopted:
            assert await node.adopt(found)
            os.kill(found.pid, signal.SIGSTOP)
            with pytest.raises(EngineDied, match=r"stood still .*: stopped by a signal"):
                await node.watch()
            await node.end()
        else:
            os.kill(found.pid, signal.SIGSTOP)
            silent = adoption.find(tmp_path, KEY)[ADDRESS]  # its first message never comes
            found.close()
            assert not await node.adopt(silent)
            assert silent.has_ended
    assert "engine/loop.py" in caplog.text, "the stacks are not in the log"
