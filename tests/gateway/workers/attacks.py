"""What code that has taken over a process tries. Each attack returns whether it has succeeded, and
fails with OSError otherwise.

    python -m tests.workers.attacks < CASES     one child for each attack, confined by some parts,
                                                as a worker, or as the engine of a configuration
"""

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vinery_serving.engine.config import EngineConfig, needs_of
from vinery_serving.processes.confine import Needs, Part, confine

_libc = ctypes.CDLL(None, use_errno=True)
_PTRACE_ATTACH = 16
_GET_DUMPABLE, _GET_NO_NEW_PRIVS, _SET_PDEATHSIG = 3, 39, 1
_NEW_USER = 0x10000000
_IO_URING_SETUP = 425
_SUCCESS = 42


@dataclass(frozen=True)
class Targets:
    """What belongs to others: a home, the web process, and sockets that listen."""

    home: str
    pid: int
    port: int
    engine_socket: str
    abstract_socket: str
    inherited_fd: int = -1


def read_the_secret(to: Targets) -> bool:
    return bool(Path(to.home, "secret_key").read_bytes())


def list_the_home(to: Targets) -> bool:
    return bool(os.listdir(to.home))  # noqa: PTH208


def read_passwords_of_the_machine(to: Targets) -> bool:
    return bool(Path("/etc/shadow").read_bytes())


def write_a_file(to: Targets) -> bool:
    os.close(os.open(f"{to.home}/{os.getpid()}", os.O_WRONLY | os.O_CREAT))
    return True


def remove_a_file(to: Targets) -> bool:
    with suppress(FileNotFoundError):
        Path(to.home, "missing", "file").unlink()
    Path(to.home, "database").rename(Path(to.home, "database"))
    return True


def open_a_secret_to_all(to: Targets) -> bool:
    path = Path(to.home, "secret_key")
    wanted = path.stat().st_mode ^ 0o022
    path.chmod(wanted)
    return path.stat().st_mode == wanted


def read_memory(to: Targets) -> bool:
    os.close(os.open(f"/proc/{to.pid}/mem", os.O_RDONLY))
    return True


def read_the_environment(to: Targets) -> bool:
    return b"VINERY_SECRET" in Path(f"/proc/{to.pid}/environ").read_bytes()


def trace(to: Targets) -> bool:
    _check(_libc.ptrace(_PTRACE_ATTACH, to.pid, 0, 0))
    return True


def copy_memory(to: Targets) -> bool:
    """The kernel asks who may, before it looks for the address."""
    area = (ctypes.c_size_t * 2)(0, 1)
    _libc.process_vm_readv(to.pid, area, 1, area, 1, 0)
    return ctypes.get_errno() == errno.EFAULT


def signal_the_web_process(to: Targets) -> bool:
    os.kill(to.pid, signal.SIGCONT)
    return True


def take_a_descriptor(to: Targets) -> bool:
    os.close(os.pidfd_open(to.pid))
    return True


def connect_to_a_port(to: Targets) -> bool:
    with socket.socket() as connection:
        connection.connect(("127.0.0.1", to.port))
    return True


def send_a_datagram(to: Targets) -> bool:
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"grapes", ("127.0.0.1", 9)) > 0


def connect_to_an_engine(to: Targets) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(to.engine_socket)
    return True


def connect_without_a_path(to: Targets) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{to.abstract_socket}")
    return True


def listen_to_clients(to: Targets) -> bool:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{to.home}/{os.getpid()}.sock")
        listener.listen()
    return True


def fork(to: Targets) -> bool:
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def run_a_program(to: Targets) -> bool:
    os.execv("/bin/sh", ["sh", "-c", f"exit {_SUCCESS}"])


def raise_a_limit(to: Targets) -> bool:
    most = resource.RLIM_INFINITY
    with suppress(ValueError):  # as Python names a missing privilege
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    return resource.getrlimit(resource.RLIMIT_FSIZE)[1] == most


def use_an_inherited_descriptor(to: Targets) -> bool:
    return bool(os.pread(to.inherited_fd, 1, 0))


def make_namespaces(to: Targets) -> bool:
    _check(_libc.unshare(_NEW_USER))
    return True


def use_a_ring_of_calls(to: Targets) -> bool:
    """The calls of `io_uring` pass no filter."""
    os.close(_check(_libc.syscall(_IO_URING_SETUP, 1, ctypes.create_string_buffer(120))))
    return True


def outlive_the_parent(to: Targets) -> bool:
    _check(_libc.prctl(_SET_PDEATHSIG, 0, 0, 0, 0))
    return True


def leave_a_core(to: Targets) -> bool:
    return bool(_libc.prctl(_GET_DUMPABLE, 0, 0, 0, 0))


def gain_privileges(to: Targets) -> bool:
    return not _check(_libc.prctl(_GET_NO_NEW_PRIVS, 0, 0, 0, 0))


def use_capabilities(to: Targets) -> bool:
    """Root may change the file of another user, if it has the capability."""
    path = Path(to.home, "of_another_user")
    os.close(os.open(path, os.O_WRONLY))
    return True


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def succeeds(attack: str, to: Targets) -> bool:
    try:
        return bool(globals()[attack](to))
    except OSError:
        return False


def in_an_engine(arguments: Mapping[str, Any]) -> None:
    """A logits processor, which runs in an engine. Its refusal names the attacks that succeed."""
    to = Targets(**arguments["targets"])
    raise ValueError(json.dumps([each for each in arguments["attacks"] if succeeds(each, to)]))


@contextmanager
def a_neighbour(home: Path) -> Iterator[Targets]:
    """A web process with its home, and sockets that listen, beside the attacked process."""
    for name in ("secret_key", "database", "of_another_user"):
        (home / name).write_text("grapes")
    (home / "of_another_user").chmod(0o600)
    if os.geteuid() == 0:
        os.chown(home / "of_another_user", 4321, 4321)
    environment = {"VINERY_SECRET_KEY": "grapes"}
    web = subprocess.Popen(["/bin/sleep", "1000"], env=environment)
    ports, engine, abstract = socket.socket(), *(socket.socket(socket.AF_UNIX) for _ in "ab")
    ports.bind(("127.0.0.1", 0))
    engine.bind(str(home / "engine.sock"))
    abstract.bind(f"\0vinery-test-{os.getpid()}")
    for each in (ports, engine, abstract):
        each.listen(100)
    address = ports.getsockname()[1]
    yield Targets(
        str(home), web.pid, address, str(home / "engine.sock"), f"vinery-test-{os.getpid()}"
    )
    for each in (ports, engine, abstract):
        each.close()
    web.kill()
    web.wait()


# -- Children that are confined by some parts


def _tried(attack: str, to: Targets, parts: list[str], needs: Needs) -> bool:
    if not (pid := os.fork()):
        try:
            inherited = replace(to, inherited_fd=os.open(f"{to.home}/secret_key", os.O_RDONLY))
            confine(needs, frozenset(map(Part, parts)))
            os._exit(_SUCCESS * succeeds(attack, inherited))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _SUCCESS


def main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    to, engine = Targets(**asked["targets"]), asked["engine"]
    needs = Needs(limits={resource.RLIMIT_FSIZE: 0})
    if engine:
        needs = needs_of(EngineConfig.from_json(engine.encode()))
    json.dump([_tried(attack, to, parts, needs) for attack, parts in asked["cases"]], sys.stdout)


def outcomes(
    to: Targets, cases: Sequence[tuple[str, Iterable[Part]]], engine: EngineConfig | None = None
) -> list[bool]:
    """Whether each attack succeeds in a process that is confined by these parts alone."""
    named = [(attack, [str(each) for each in parts]) for attack, parts in cases]
    config = "" if engine is None else engine.to_line().decode()
    ran = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps({"targets": asdict(to), "cases": named, "engine": config}).encode(),
        stdout=subprocess.PIPE,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    found: list[bool] = json.loads(ran.stdout)
    return found


if __name__ == "__main__":
    main()
