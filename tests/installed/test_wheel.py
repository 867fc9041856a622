"""The wheel in an empty environment, used by a new user who has no clone.

Only with VINERY_TEST_WHEEL, the path of the wheel: installing all requirements takes a minute.
The tests run in the order of this file, as a newcomer goes on.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests import shapes
from tests.conftest import REPOSITORY, until

WHEEL = Path(os.environ["VINERY_TEST_WHEEL"]).resolve()
IS_ROOT = os.geteuid() == 0
# As root, the user owns no file of this machine, and Python is that of the system,
# because others may not be able to open that of root.
USER = 64_001
PYTHON = "/usr/bin/python3" if IS_ROOT else sys.executable
QUESTION = "What is the capital of France?"


@dataclass
class Newcomer:
    """A user with a folder of their own, and an environment that has the wheel."""

    folder: Path
    server: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.folder / ".local" / "share" / "vinery"

    @property
    def bootstrap(self) -> dict[str, str]:
        read: dict[str, str] = json.loads((self.home / "bootstrap.json").read_text())
        return read

    @property
    def base_url(self) -> str:
        return self.bootstrap["base_url"]

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        path = f"{self.folder}/env/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
        account = {"user": USER, "group": USER, "extra_groups": []} if IS_ROOT else {}
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env={"HOME": str(self.folder), "PATH": path, "LANG": "C.UTF-8", "VINERY_PORT": "0"},
            stdin=subprocess.DEVNULL,
            **account,
            **options,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(
            words, process.returncode, output.decode(), errors.decode()
        )

    def vinery(self, *words: str) -> str:
        ended = self.run("vinery", *words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def start(self) -> None:
        with (self.folder / "up.log").open("wb") as log:
            self.server = self.popen("vinery", "up", stdout=log, stderr=log, start_new_session=True)
        until(lambda: self.has_started() and _is_ready(self.base_url), timeout_s=120)

    def has_started(self) -> bool:
        assert self.server is not None
        assert self.server.poll() is None, (self.folder / "up.log").read_text()
        return (self.home / "bootstrap.json").exists()

    def stop(self) -> None:
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(60)
            self.server = None

    def ask(self, key: str, model: str = "tiny-chat", content: object = QUESTION) -> httpx.Response:
        return httpx.post(
            f"{self.base_url}/v1/chat/completions",
            headers={"authorization": f"Bearer {key}"},
            json={"model": model, "messages": [{"role": "user", "content": content}]},
            timeout=60,
        )


def _is_ready(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def newcomer() -> Iterator[Newcomer]:
    # Not below the folders of tests, which other users cannot open.
    folder = Path(tempfile.mkdtemp(prefix="vinery-newcomer-", dir="/tmp"))
    subprocess.run([PYTHON, "-m", "venv", str(folder / "env")], check=True)
    pip = [str(folder / "env" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", str(WHEEL)], check=True)
    if IS_ROOT:
        os.chown(folder, USER, USER)
    newcomer = Newcomer(folder)
    try:
        yield newcomer
    finally:
        newcomer.stop()
        shutil.rmtree(folder)


def test_a_command_that_only_reads_creates_no_home(newcomer: Newcomer) -> None:
    ended = newcomer.run("vinery", "key", "list")

    assert ended.returncode == 2
    assert "There is no Vinery home" in ended.stderr
    assert not newcomer.home.exists()


def test_it_starts_with_a_home_in_the_data_folder_of_the_user(newcomer: Newcomer) -> None:
    newcomer.start()

    assert newcomer.home.stat().st_mode & 0o777 == 0o700
    assert "tiny-chat" in newcomer.vinery("model", "list")


def test_the_first_key_gets_an_answer(newcomer: Newcomer) -> None:
    answer = newcomer.ask(newcomer.bootstrap["api_key"]).json()

    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."


def test_the_administrator_signs_in_and_sees_the_console(newcomer: Newcomer) -> None:
    with httpx.Client(base_url=newcomer.base_url, follow_redirects=True) as browser:
        page = browser.get("/accounts/login/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert token
        form = {
            "login": newcomer.bootstrap["admin_user"],
            "password": newcomer.bootstrap["admin_password"],
            "csrfmiddlewaretoken": token[1],
        }
        browser.post("/accounts/login/", data=form, headers={"referer": newcomer.base_url})
        console, admin = browser.get("/console/"), browser.get("/admin/")
        style = browser.get("/static/console/console.css")

    assert (console.status_code, admin.status_code, style.status_code) == (200, 200, 200)
    assert 'href="/console/keys/"' in console.text


def test_the_shipped_vision_model_sees_a_picture(newcomer: Newcomer) -> None:
    newcomer.vinery("model", "add", "tiny-vision")
    key = newcomer.bootstrap["api_key"]
    url = shapes.data_url(shapes.encoded(shapes.a_shape("circle", "red")))
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "What is in the picture?"},
    ]

    answer = until(
        lambda: _answered(newcomer.ask(key, "tiny-vision", content=content)), timeout_s=60
    )

    assert answer.json()["choices"][0]["message"]["content"] == "A red circle."


def _answered(response: httpx.Response) -> httpx.Response | None:
    return response if response.status_code == 200 else None


def test_no_process_uses_the_clone(newcomer: Newcomer) -> None:
    assert newcomer.server is not None
    supervisor = psutil.Process(newcomer.server.pid)
    family = [supervisor, *supervisor.children(recursive=True)]
    used = {
        path
        for process in family
        for path in (
            process.cwd(),
            *process.cmdline(),
            *(each.path for each in process.open_files()),
            *(each.path for each in process.memory_maps()),
        )
        if path.startswith(str(REPOSITORY))
    }

    assert len(family) >= 5
    assert not used
