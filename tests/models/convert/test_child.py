"""Programs of other environments: limits, output and end."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import until_in_loop as until
from vinery_serving.models.convert import child
from vinery_serving.models.convert.child import ChildFailed

_FOREVER = "import time\nwhile True: time.sleep(1)"


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


async def run(code: str, timeout_s: float = 60.0, writes: tuple[Path, ...] = ()) -> bytes:
    needs = child.program_needs((Path(sys.executable),), writes, writes)
    output = bytearray()
    await child.run(python(code), output.extend, needs, timeout_s=timeout_s)
    return bytes(output)


async def test_its_output_is_passed_on_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VINERY_SECRET_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    output = await run("import os; print(dict(os.environ))")
    assert b"secret" not in output
    assert b"PATH" in output
    with pytest.raises(ChildFailed, match="ended with status 1") as failed:
        await run("raise SystemExit('no weights here')")
    assert failed.value.last_line == "no weights here"


async def test_more_time_than_the_limit_ends_it() -> None:
    of_other_tests = set(psutil.Process().children(recursive=True))
    with pytest.raises(TimeoutError):
        await run(_FOREVER, timeout_s=0.5)
    assert not set(psutil.Process().children(recursive=True)) - of_other_tests


async def test_the_whole_group_ends_when_it_is_cancelled_or_its_parent_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_GRACE_S", 0.5)
    pids = tmp_path / "pids"
    code = (
        "import os, signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"other = subprocess.Popen([sys.executable, '-c', {_FOREVER!r}])\n"
        f"open({str(pids) + '.new'!r}, 'w').write(f'{{os.getpid()}} {{other.pid}}')\n"
        f"os.rename({str(pids) + '.new'!r}, {str(pids)!r})\n"
        f"{_FOREVER}"
    )
    running = asyncio.create_task(run(code, writes=(tmp_path,)))
    await until(pids.exists)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for pid in map(int, pids.read_text().split()):
        await until(lambda pid=pid: has_ended(pid))  # type: ignore[misc]
    pid_file = tmp_path / "pid"
    write = f"import os; open({str(pid_file)!r}, 'w').write(str(os.getpid())); {_FOREVER!r}"
    code = f"{write}\n{_FOREVER}"
    parent = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from vinery_serving.models.convert import child\n"
        f"command = (sys.executable, '-c', {code!r})\n"
        f"needs = child.program_needs((Path(sys.executable),), (), (Path({str(tmp_path)!r}),))\n"
        "asyncio.run(child.run(command, lambda _: None, needs))"
    )
    process = await asyncio.create_subprocess_exec(*python(parent))
    await until(lambda: pid_file.exists() and pid_file.read_text() != "")
    process.kill()
    await process.wait()
    pid = int(pid_file.read_text())
    await until(lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
