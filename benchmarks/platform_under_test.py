"""A platform for a benchmark: `vinery up` in a temporary home, on a free port.

The benchmark starts and drives the platform by command lines, as a person would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.load import Endpoint
from benchmarks.settings import TINY_CHAT

_START_TIMEOUT_S = 120.0
_LOAD_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 30.0
_ASK_EVERY_S = 0.25
_JOURNALS_S = 5.0  # until the journals of killed web processes are stored


class PlatformFailed(Exception):
    """The platform did not start, or did not serve a model. The message has the reason."""


@dataclass(frozen=True)
class OwnPlatform:
    """A running platform and the ways to change what it serves."""

    home: Path
    endpoint: Endpoint

    def serve(self, name: str, folder: Path, options: dict[str, Any]) -> None:
        """Serve a folder, and wait for its first answer. Raises PlatformFailed."""
        words = [f"{key}={json.dumps(value)}" for key, value in options.items()]
        flags = [flag for word in words for flag in ("--option", word)]
        self.run("model", "add", str(folder), "--name", name, *flags)
        wait_until_it_answers(self.endpoint, name)

    def remove(self, name: str) -> None:
        """Serve a model no longer. Raises PlatformFailed."""
        self.run("model", "remove", name)

    def run(self, *words: str) -> str:
        """Run a command of `vinery`, and return its output. Raises PlatformFailed."""
        command = [sys.executable, "-m", "vinery_platform.cli", *words]
        done = subprocess.run(
            command, env=_environment(self.home), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PlatformFailed(f"vinery {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def processes(self) -> Iterator[tuple[psutil.Process, list[str]]]:
        """All with their command lines, also engines that have outlived their node. Workers have no
        environment of the server: their parents tell."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # it ended, or belongs to another user
                family = [process, *process.parents()][:-1]
                values = [value for each in family for value in each.environ().values()]
                if any(str(self.home) in each for each in values):
                    yield process, process.cmdline()

    def verified_usage(self) -> str:
        """Return what `vinery usage verify` says of the ledger."""
        time.sleep(_JOURNALS_S)
        wait_until_it_answers(self.endpoint, TINY_CHAT)
        return f"usage verify: {self.run('usage', 'verify').strip()}"


@contextmanager
def own_platform(folder: Path | None = None) -> Iterator[OwnPlatform]:
    """A platform that lives as long as the block, with its home in `folder`, or in a temporary
    folder. Raises PlatformFailed.

    An error in the block leaves with the last lines of the platform's log, which would be gone with
    the folder.
    """
    with ExitStack() as stack:
        if folder is None:
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="vinery-bench-"))
            folder = Path(own)
        home, log = folder / "home", folder / "platform.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "vinery_platform.cli", "up", "--end-with-parent"],
                env=_environment(home),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield OwnPlatform(home, _started(process, home))
        except Exception as error:
            error.add_note(f"Output of the platform:\n{tail(log)}")
            raise
        finally:
            _end(process)


def wait_until_it_answers(
    endpoint: Endpoint, model: str, is_alive: Callable[[], bool] = lambda: True
) -> None:
    """Wait for one token. Raises PlatformFailed with the last refusal."""
    give_up_at = time.monotonic() + _LOAD_TIMEOUT_S
    while (refusal := _refusal(endpoint, model)) is not None:
        if time.monotonic() > give_up_at or not is_alive():
            raise PlatformFailed(f"{model} does not answer: {refusal}")
        time.sleep(_ASK_EVERY_S)


def tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-4000:]


def _started(process: subprocess.Popen[bytes], home: Path) -> Endpoint:
    """Wait for the credentials, and for a socket that answers."""
    bootstrap = home / "bootstrap.json"
    give_up_at = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < give_up_at and process.poll() is None:
        if bootstrap.exists():
            known = json.loads(bootstrap.read_text(encoding="utf-8"))
            if _is_live(known["base_url"]):
                return Endpoint(known["base_url"], known["api_key"])
        time.sleep(_ASK_EVERY_S)
    raise PlatformFailed("vinery up did not start")


def _is_live(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/livez", timeout=5).is_success
    except httpx.HTTPError:
        return False


def _refusal(endpoint: Endpoint, model: str) -> str | None:
    """Why the model gives no token yet, or None when it does."""
    messages = [{"role": "user", "content": "Hello!"}]
    content = {"model": model, "messages": messages, "max_tokens": 1}
    url = f"{endpoint.base_url}/v1/chat/completions"
    try:
        answer = httpx.post(url, json=content, headers=endpoint.headers, timeout=60)
    except httpx.HTTPError as error:
        return str(error)
    return None if answer.is_success else answer.text


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_TIMEOUT_S)
    process.kill()  # does nothing to a process that has ended
    process.wait()


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"VINERY_HOME": str(home), "VINERY_HOST": "127.0.0.1", "VINERY_PORT": "0"}
