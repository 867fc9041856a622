"""The supervisor, and children that end with their parent, tested with small scripts."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import clean_environment
from tests.conftest import until as until_then
from tests.conftest import until_in_loop as until
from vinery_platform.processes.supervisor import Service, Supervisor

# Scripts write lines such as "start 4711 one" into a shared journal.
_WRITE = """
import os, signal, sys, time
from pathlib import Path
def write(word, pid=os.getpid()):
    with open(sys.argv[1], "a") as journal:
        journal.write(f"{word} {pid} {sys.argv[2]}\\n")
"""
_OBEDIENT = f"""{_WRITE}
def end(*_):
    write("end")
    sys.exit()
signal.signal(signal.SIGTERM, end)
write("start")
while True:
    signal.pause()
"""
_STUBBORN = _OBEDIENT.replace("    sys.exit()\n", "")
_SHORT_LIVED = _OBEDIENT.replace("while True:\n    signal.pause()", "sys.exit(3)")
_PARENT = _OBEDIENT.replace(
    "while True:",
    "import subprocess\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
    "write('child', child.pid)\n"
    "while True:",
)
# A service that beats until a file appears. Then it does what is in the file, and beats no more.
_BEATING = f"""{_WRITE}
from vinery_platform.processes import heartbeats
def stand_still():
    exec(order.read_text())
heartbeats.inherit()
order = Path(sys.argv[1] + ".order")
write("start")
while not order.exists():
    heartbeats.beat()
    time.sleep(0.05)
stand_still()
"""
# A service that serves. Asked to end when idle, it does so on an order.
_SERVING = f"""{_WRITE}
from vinery_platform.processes import heartbeats
def end_when_idle(*_):
    write("asked")
    while not Path(sys.argv[1] + ".idle").exists():
        heartbeats.beat()
        time.sleep(0.05)
    write("end")
    sys.exit()
signal.signal(heartbeats.END_WHEN_IDLE, end_when_idle)
heartbeats.inherit()
write("start")
heartbeats.report_serving()
while True:
    heartbeats.beat()
    time.sleep(0.05)
"""
_NEVER_SERVES = _SERVING.replace("heartbeats.report_serving()\n", "")
# Services are forks of this one, whose start they write, too.
_FORKING = f"""{_WRITE}
from vinery_serving.processes import forks
write("start")
own = os.getpid()
if argv := forks.serve():
    sys.argv = ["-c", *argv[-2:]]
    write(f"fork-of-{{own}}", os.getpid())
    exec(argv[argv.index("-c") + 1])
"""
# A service whose successor cannot answer requests.
_WITHOUT_SUCCESSOR = _SERVING.replace(
    'write("start")\n',
    'write("start")\nheartbeats.is_successor() and sys.exit(heartbeats.CANNOT_ANSWER)\n',
)


class Script:
    """A service that runs a script, and the lines that the script wrote."""

    def __init__(self, journal: Path, name: str, code: str, **options: Any) -> None:
        argv = (sys.executable, "-S", "-c", code, str(journal), name)
        self.service = Service(name, argv, **options)
        self._journal = journal

    def pids(self, word: str = "start") -> list[int]:
        """Return the ids that this script wrote with a word, in order."""
        lines = [line.split() for line in lines_of(self._journal)]
        return [
            int(pid) for found, pid, name in lines if (found, name) == (word, self.service.name)
        ]


def lines_of(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


MakeScript = Callable[..., Script]


@pytest.fixture
def script(tmp_path: Path) -> MakeScript:
    def make(name: str, code: str = _OBEDIENT, **options: Any) -> Script:
        return Script(tmp_path / "journal", name, code, **options)

    return make


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of processes fails on a machine that gives them little time."""
    monkeypatch.setattr("vinery_platform.processes.supervisor._FRONT_GRACE_S", 60.0)
    monkeypatch.setattr("vinery_platform.processes.supervisor._TOTAL_GRACE_S", 120.0)
    monkeypatch.setattr("vinery_serving.processes.child._STACKS_WITHIN_S", 60.0)
    monkeypatch.setattr("vinery_serving.processes.heartbeat._STOPPED_S", 1.0)


@asynccontextmanager
async def supervised(
    *scripts: Script, hung_after_s: float = 4.0
) -> AsyncIterator[tuple[Supervisor, asyncio.Task[None]]]:
    """Yield a supervisor that runs these scripts. It is killed at the end."""
    supervisor = Supervisor(os.environ, hung_after_s)
    running = asyncio.create_task(supervisor.run([script.service for script in scripts]))
    try:
        yield supervisor, running
    finally:
        supervisor.stop()
        supervisor.kill()
        await running


async def until_started(supervisor: Supervisor, *scripts: Script, number: int = 1) -> None:
    """Wait for so many starts of each. A script may run before the supervisor has its process id.
    A supervisor that is stopped then ends the script at once, without order or second signal."""

    def has_started(script: Script) -> bool:
        return len(script.pids()) == number and script.pids()[-1] in supervisor.pids

    await until(lambda: all(map(has_started, scripts)))


def is_alive(pid: int) -> bool:
    """Not so one that has ended, whether or not its parent has taken notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def messages_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Without asyncio's messages, which may warn of a process that ended during a signal."""
    return [each.getMessage() for each in caplog.records if each.name != "asyncio"]


async def test_a_killed_service_ends_with_its_processes_and_is_restarted_while_others_continue(
    script: MakeScript,
) -> None:
    one, other = script("one", _PARENT), script("other")
    async with supervised(one, other):
        await until(lambda: one.pids("child") and other.pids())

        os.kill(one.pids()[0], signal.SIGKILL)

        await until(lambda: not is_alive(one.pids("child")[0]))
        await until(lambda: len(one.pids()) == 2)
        assert is_alive(one.pids()[1])
        assert len(other.pids()) == 1
        assert os.getsid(other.pids()[0]) != os.getsid(0), "it gets signals of the terminal"


async def test_a_service_that_dies_at_once_or_cannot_start_is_tried_for_ever_and_each_end_logged(
    script: MakeScript, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short_lived, missing = script("short", _SHORT_LIVED), script("missing")
    missing.service = Service("missing", (str(tmp_path / "no-such-program"),))

    def messages(name: str) -> list[str]:
        return [each for each in messages_of(caplog) if name in each]

    async with supervised(short_lived, missing):
        await until(lambda: len(short_lived.pids()) >= 4 and len(messages("missing")) >= 2)

    assert "short ended after" in messages("short")[0]
    assert "(exit status 3); restart in 0 s" in messages("short")[0]
    assert "it could not start" in messages("missing")[0]


async def test_front_services_end_first_and_all_end(script: MakeScript, tmp_path: Path) -> None:
    back, front = script("back"), script("front", is_front=True)
    async with supervised(back, front) as (supervisor, running):
        await until_started(supervisor, back, front)

        supervisor.stop()
        await running

        assert back.pids("end") == back.pids()
        assert front.pids("end") == front.pids()
    ends = [line.split()[2] for line in lines_of(tmp_path / "journal") if line.startswith("end")]
    assert ends == ["front", "back"]


async def test_a_deaf_service_is_killed(
    script: MakeScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    for end, grace_s in ((Supervisor.kill, 60.0), (Supervisor.stop, 0.2)):
        monkeypatch.setattr("vinery_platform.processes.supervisor._TOTAL_GRACE_S", grace_s)
        stubborn = script(end.__name__, _STUBBORN)
        async with supervised(stubborn) as (supervisor, running):
            await until_started(supervisor, stubborn)

            end(supervisor)
            await running

            assert not is_alive(stubborn.pids()[0])
            assert end is Supervisor.stop or stubborn.pids("end") == [], "it got SIGTERM"


async def test_a_stopped_service_is_replaced_unless_the_watch_is_turned_off(
    script: MakeScript, caplog: pytest.LogCaptureFixture
) -> None:
    one, other, unwatched = (script(name, _BEATING, beats=True) for name in ("one", "other", "un"))
    async with supervised(one, other), supervised(unwatched, hung_after_s=0):
        await until(lambda: one.pids() and other.pids() and unwatched.pids())

        os.kill(unwatched.pids()[0], signal.SIGSTOP)
        os.kill(one.pids()[0], signal.SIGSTOP)

        await until(lambda: len(one.pids()) == 2)
        assert not is_alive(one.pids()[0])
        assert len(other.pids()) == 1
        assert is_alive(unwatched.pids()[0])
    assert "one stood still" in caplog.text
    assert "un stood still" not in caplog.text
    assert "<string>:" in caplog.text, "the stacks are not in the log"


@pytest.mark.parametrize(
    ("order", "within_s", "stacks"),
    [
        ("while True: pass", 60.0, " stand_still < "),
        (
            "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=600)",
            *(60.0, " stand_still < "),
        ),
        (
            "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(600)",
            *(0.2, "its stacks: unknown"),
        ),
    ],
    ids=["computes", "waits", "ignores all signals"],
)
async def test_a_service_that_hangs_is_replaced_and_its_stack_logged(
    script: MakeScript,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    order: str,
    within_s: float,
    stacks: str,
) -> None:
    monkeypatch.setattr("vinery_serving.processes.child._STACKS_WITHIN_S", within_s)
    one = script("one", _BEATING, beats=True)
    async with supervised(one, hung_after_s=2.0):
        await until(one.pids)

        draft = tmp_path / "journal.draft"
        draft.write_text(order)
        draft.rename(tmp_path / "journal.order")  # which is never seen half-written
        await until(lambda: "stood still" in caplog.text)
        (tmp_path / "journal.order").unlink()

        assert not is_alive(one.pids()[0])
        await until(lambda: len(one.pids()) >= 2)
    assert stacks in caplog.text


class Memory:
    """The memory of processes as the supervisor reads it. The first process is too large once it
    has begun: earlier, the signal to end when idle would kill the process."""

    def __init__(self) -> None:
        self.num_looks: Counter[int] = Counter()
        self.script: Script | None = None

    def __call__(self, pid: int) -> int:
        self.num_looks[pid] += 1
        begun = self.script.pids() if self.script is not None else []
        return 300 << 20 if begun[:1] == [pid] else 100 << 20


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory()
    monkeypatch.setattr("vinery_platform.processes.supervisor.resident_bytes", memory)
    monkeypatch.setattr("vinery_platform.processes.supervisor._MEMORY_INTERVAL_S", 0.05)
    return memory


def large(script: MakeScript, memory: Memory, code: str = _SERVING, **options: Any) -> Script:
    memory.script = script("one", code, beats=True, max_memory_mb=200, **options)
    return memory.script


async def test_a_successor_that_dies_is_restarted_beside_its_predecessor_until_both_end(
    script: MakeScript, memory: Memory
) -> None:
    one = large(script, memory, is_front=True)
    async with supervised(one) as (supervisor, running):
        await until(lambda: one.pids("asked"))
        old, new = one.pids()

        os.kill(new, signal.SIGKILL)
        await until(lambda: len(one.pids()) == 3)
        assert is_alive(old)

        supervisor.stop()
        await running
        assert not any(map(is_alive, one.pids()))


async def test_a_process_goes_on_while_no_successor_serves(
    script: MakeScript,
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("vinery_platform.processes.supervisor.START_LIMIT_S", 0.2)
    one = large(script, memory, _NEVER_SERVES)
    async with supervised(one) as (supervisor, _):
        await until_started(supervisor, one)
        first = one.pids()[0]

        await until(lambda: "has not served in 0.2 s" in caplog.text)

        await until(lambda: supervisor.pids == {first})
        assert is_alive(first)
        assert one.pids("asked") == []


async def test_a_reload_notes_why_a_process_goes_on_or_that_all_are_replaced(
    script: MakeScript, tmp_path: Path
) -> None:
    (tmp_path / "journal.idle").touch()
    one = script("one", _WITHOUT_SUCCESSOR, beats=True, is_replaceable=True)
    two = script("two", _SERVING, beats=True, is_replaceable=True)
    for service, why_not in ((one, "one is not replaced: the database does not answer"), (two, "")):
        notes: list[str] = []
        async with supervised(service) as (supervisor, _):
            await until_started(supervisor, service)
            (first,) = service.pids()
            supervisor.reload(notes.append)
            await until(lambda notes=notes: notes)
            assert notes[0].startswith(why_not)
            assert bool(notes[0]) == bool(why_not)

            if why_not:
                assert supervisor.pids == {first}
                assert service.pids("asked") == []
            else:
                await until(lambda first=first: not is_alive(first))
                assert service.pids("asked") == [first]
        assert len(service.pids()) == 2


async def test_a_process_that_dies_while_its_successor_starts_is_restarted_once(
    script: MakeScript, memory: Memory
) -> None:
    one = large(script, memory, _NEVER_SERVES)
    async with supervised(one):
        await until(lambda: len(one.pids()) == 2)

        os.kill(one.pids()[0], signal.SIGKILL)

        await until(lambda: len(one.pids()) == 3)
        assert is_alive(one.pids()[2])


async def test_a_process_that_runs_once_has_a_status_and_stop_ends_it(script: MakeScript) -> None:
    assert await Supervisor(os.environ).run_once(script("short", _SHORT_LIVED).service) == 3

    once = script("once")
    supervisor = Supervisor(os.environ)
    running = asyncio.create_task(supervisor.run_once(once.service))
    await until_started(supervisor, once)
    supervisor.stop()
    assert await running == 0
    assert once.pids("end") == once.pids()


# Starts the child given as the first argument, tied to itself, and waits.
_TYING = """
import os, signal, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", *sys.argv[1:]],
    env=os.environ | {"VINERY_PARENT_PID": str(os.getpid())},
    start_new_session=True,
)
signal.pause()
"""
_TIED = """
import os, signal, sys
from vinery_serving.processes import parent
parent.GRACE_S = 0.5
{before}
parent.end_gently_with(int(os.environ["VINERY_PARENT_PID"]), grace_s=0.5)
open(sys.argv[1], "w").write(str(os.getpid()))
while True:
    signal.pause()
"""


@contextmanager
def tied_child(tmp_path: Path, before: str = "") -> Iterator[tuple[int, int]]:
    """Yield the ids of a parent and its tied child. Both are running."""
    file = tmp_path / "pid"
    code = _TIED.format(before=before)
    parent = subprocess.Popen(
        [sys.executable, "-c", _TYING, code, str(file)], env=clean_environment()
    )
    try:
        child_pid = until_then(lambda: int(file.read_text() or 0) if file.exists() else 0)
        yield parent.pid, child_pid
    finally:
        parent.kill()
        parent.wait()


_DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"  # it is killed
_WITH_A_CHILD = (
    "import subprocess\nsubprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])"
)


@pytest.mark.parametrize(
    ("before", "num_children"),
    [
        *(("", 0), (_DEAF, 0), (_DEAF + _WITH_A_CHILD, 1)),
        ("import sys; sys.platform = 'darwin'", 0),  # without help of the kernel a thread polls
    ],
)
def test_the_child_of_a_killed_parent_ends_with_its_own(
    tmp_path: Path, before: str, num_children: int
) -> None:
    with tied_child(tmp_path, before=before) as (parent_pid, child_pid):
        family = [child_pid, *(each.pid for each in psutil.Process(child_pid).children())]
        assert len(family) == 1 + num_children

        os.kill(parent_pid, signal.SIGKILL)

        until_then(lambda: not any(map(psutil.pid_exists, family)))


def test_a_child_whose_parent_is_already_gone_ends(tmp_path: Path) -> None:
    late = "os.environ['VINERY_PARENT_PID'] = '1073741824'"  # larger than any process id
    file = tmp_path / "pid"
    code = _TIED.format(before=late)
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], env=clean_environment(), start_new_session=True
    )

    assert child.wait(timeout=30) == -signal.SIGTERM


# -- Services as forks


@pytest.fixture
def adopting() -> Iterator[None]:
    """This process becomes the parent of orphans."""
    ctypes.CDLL(None).prctl(36, 1)
    yield
    ctypes.CDLL(None).prctl(36, 0)


@pytest.mark.usefixtures("adopting")
async def test_services_are_forks_also_after_the_end_of_the_process_that_forks(
    script: MakeScript,
) -> None:
    warm = script("warm", _FORKING, forks_others=True)
    one = script("one")
    async with supervised(warm, one) as (supervisor, _):
        await until_started(supervisor, warm, one)
        first = warm.pids()[0]
        assert one.pids(f"fork-of-{first}") == one.pids()
        os.kill(one.pids()[0], signal.SIGKILL)
        await until_started(supervisor, one, number=2)
        assert one.pids(f"fork-of-{first}") == one.pids()

        os.kill(first, signal.SIGSTOP)
        await until_started(supervisor, warm, number=2)
        assert is_alive(one.pids()[1])
        assert await supervisor.run_once(script("short", _SHORT_LIVED).service) == 3
        assert script("short").pids(f"fork-of-{warm.pids()[1]}") == script("short").pids()


@pytest.mark.usefixtures("adopting")
async def test_a_reload_forks_from_a_new_process(script: MakeScript, tmp_path: Path) -> None:
    (tmp_path / "journal.idle").touch()
    warm = script("warm", _FORKING, forks_others=True, is_replaceable=True)
    one = script("one", _SERVING, beats=True, is_replaceable=True)
    async with supervised(warm, one) as (supervisor, _):
        await until_started(supervisor, warm, one)
        os.kill(warm.pids()[0], signal.SIGKILL)  # the next one is the younger of both services
        await until_started(supervisor, warm, number=2)
        notes: list[str] = []
        supervisor.reload(notes.append)
        await until(lambda: notes)
        assert notes == [""]
        _, old, new = warm.pids()
        assert one.pids(f"fork-of-{new}") == one.pids()[1:]
        await until(lambda: not is_alive(old))


async def test_services_are_programs_if_the_process_that_forks_ends_at_once(
    script: MakeScript,
) -> None:
    warm, one = script("warm", _SHORT_LIVED, forks_others=True), script("one")
    async with supervised(warm, one) as (supervisor, _):
        await until_started(supervisor, one)


async def test_a_stop_does_not_wait_for_the_process_that_forks(script: MakeScript) -> None:
    warm, one = script("warm", forks_others=True), script("one")
    async with supervised(warm, one) as (supervisor, running):
        await until(lambda: warm.pids() and supervisor.pids)
        supervisor.stop()
        await running
    assert warm.pids() == warm.pids("end")
