"""What `vinery up` prints: addresses, credentials for a terminal, no secret for a log, and commands
that work in the reader's shell."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.tables import table
from vinery.cli import invocation
from vinery.cli.greeting import Greeting
from vinery.cli.wait import curl_line
from vinery.config import env
from vinery.config.credentials import Credentials
from vinery.config.home import Home, default_path

URL = "http://127.0.0.1:8123"
KNOWN = Credentials(URL, "vny_live_k", "admin", "pa55word")
HOME = Home(Path("/srv/vinery"))
GREETING = Greeting(URL, HOME, pid=77, vinery="VINERY_HOME=/srv/vinery vinery")


def rows_of(text: str) -> dict[str, str]:
    """Return the values by their names."""
    return dict(re.findall(r"^  (\w+(?: \w+)?) {2,}(.+)$", text, flags=re.MULTILINE))


def test_the_first_start_prints_all_addresses_and_credentials() -> None:
    rows = rows_of(GREETING.for_terminal(KNOWN, is_first_start=True))

    assert rows["URL"] == URL
    assert rows["console"] == f"{URL}/console/"
    assert rows["API"].split()[0] == f"{URL}/v1"
    assert (rows["user"], rows["password"]) == ("admin", "pa55word")
    assert rows["API key"] == "vny_live_k"
    assert rows["saved in"].split()[0] == "/srv/vinery/bootstrap.json"
    assert "Ctrl-C" in rows["stop"]
    assert rows["commands"] == "VINERY_HOME=/srv/vinery vinery --help"


def test_a_later_start_and_a_log_name_the_file_of_the_credentials_instead() -> None:
    later, log = GREETING.for_terminal(KNOWN, is_first_start=False), GREETING.for_log(KNOWN)

    assert "pa55word" not in later + log
    assert "/srv/vinery/bootstrap.json" in later
    assert "vny_live_k" not in log
    assert "To see the credentials: cat /srv/vinery/bootstrap.json" in log
    assert f"{URL}/v1" in log


def test_without_saved_credentials_it_shows_how_to_create_a_key() -> None:
    for text in (GREETING.for_log(None), GREETING.for_terminal(None, is_first_start=False)):
        assert "VINERY_HOME=/srv/vinery vinery key create --name NAME" in text


def test_behind_a_proxy_the_public_addresses_come_first() -> None:
    proxied = Greeting(URL, HOME, 77, "vinery", public_url="https://vinery.example")
    rows = rows_of(proxied.for_log(KNOWN))

    assert rows["console"] == "https://vinery.example/console/"
    assert rows["local"] == URL


def test_a_second_start_names_the_process_and_how_to_stop_it() -> None:
    text = GREETING.already_running()

    assert "/srv/vinery (process 77)" in text
    assert rows_of(text)["stop"].endswith("kill 77")


def test_the_curl_line_is_quoted_for_the_shell() -> None:
    words = shlex.split(curl_line(URL, "vny_live_k", "it's $HOME"))

    assert words[:2] == ["curl", f"{URL}/v1/chat/completions"]
    assert "Authorization: Bearer vny_live_k" in words
    assert json.loads(words[-1])["model"] == "it's $HOME"


@table(
    "home, is_from_file, needs_variable",
    [(default_path(), False, False), (Path("/a b"), False, True), (Path("/a b"), True, False)],
)
def test_commands_name_the_home_if_other_shells_do_not_find_it(
    monkeypatch: pytest.MonkeyPatch, home: Path, is_from_file: bool, needs_variable: bool
) -> None:
    monkeypatch.setenv("VINERY_HOME", str(home))
    monkeypatch.setattr(env, "_origins", {})
    if is_from_file:
        env.note_origin("VINERY_HOME", Path("/home/alice/.config/vinery/vinery.toml"))

    words = shlex.split(invocation.vinery())

    assert words[-1].endswith("vinery")
    assert words[:-1] == (["VINERY_HOME=/a b"] if needs_variable else [])


def test_commands_name_the_configuration_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "v.toml"
    file.touch()
    monkeypatch.setenv("VINERY_CONFIG", str(file))
    monkeypatch.setenv("VINERY_HOME", str(default_path()))

    assert invocation.vinery().startswith(f"VINERY_CONFIG={file} ")


@pytest.fixture(autouse=True)
def _no_command_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


def test_the_program_is_named_from_the_folder_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path(sys.executable).parent
    monkeypatch.chdir(folder.parent)

    assert invocation.vinery().split()[-1] == f"{folder.name}/vinery"


@pytest.mark.parametrize("folder", [Path("/"), None])
def test_elsewhere_its_whole_path_is_shown(
    folder: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder or tmp_path)

    assert invocation.vinery().split()[-1] == str(Path(sys.executable).with_name("vinery"))
