"""`vinery ready`: is the server of this machine ready? And the text of `vinery up` once it is.

Without Django, for the supervisor.
"""

import argparse
import json
import shlex
import shutil
import sys
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vinery_platform.cli.shape import Failure
from vinery_platform.config import config_file, env
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Credentials, Home, RunningServer, default_path
from vinery_platform.processes import log_setup as logs
from vinery_platform.processes.listening import Address

_TIMEOUT_S = 2.0


def local_url() -> str:
    """The root URL of the server of this home, for clients of this machine: of the running server,
    else by the settings. Raises `SettingError` for an address that cannot be used."""
    try:
        server = RunningServer.read(Home.from_env())
    except SettingError:  # the home of another user, whose server may answer all the same
        server = None
    return Address.from_env().base_url if server is None else server.base_url


def health(base_url: str) -> dict[str, Any] | None:
    """The report of `/readyz`, and `is_ready`; None without a whole answer. Blocks for at most
    `_TIMEOUT_S`. No proxy and no redirect leads to another server than the named one."""
    parts = urlsplit(base_url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    report = {}
    with suppress(ValueError):  # of another server
        report = json.loads(text)
    return {**report, "is_ready": answer.status == HTTPStatus.OK}


def run_ready(_: argparse.Namespace) -> str:
    """Ask the server of this home whether a model has generated a token lately. If `vinery up` does
    not run with this home, the server on VINERY_HOST, VINERY_PORT is asked. The exit status is 0 if
    a model has, and 1 if not."""
    base_url = local_url()
    report = health(base_url)
    if report is None:
        raise Failure(f"{base_url} is not ready: no web process answers.")
    if not report["is_ready"]:
        raise Failure(f"{base_url} is not ready: it waits for a model's first token.")
    return f"{base_url} is ready."


# -- The greeting


def greet(server: RunningServer, home: Home, *, is_first_start: bool) -> None:
    """Print addresses, credentials and commands: with secrets on a terminal only, because more
    people and programs read a log than secrets are for; with JSON lines a record. Raises
    `SettingError`."""
    line = f"running at {server.base_url}"
    if logs.is_json():
        logs.announce(line)
        return
    known, is_terminal = Credentials.read(home.bootstrap_file), sys.stdout.isatty()
    shows_password = is_terminal and is_first_start
    logs.show(greeting(server, home, known, shows_key=is_terminal, shows_password=shows_password))
    logs.note_printed(line)


def greeting(
    server: RunningServer,
    home: Home,
    known: Credentials | None,
    *,
    shows_key: bool,
    shows_password: bool,
) -> str:
    vinery, public_url = command_words(), env.url("VINERY_PUBLIC_URL")
    url = public_url or server.base_url
    rows = {"URL": url, "console": f"{url}/console/", "admin": f"{url}/admin/"}
    rows["API"] = f"{url}/v1 (the base URL for OpenAI clients)"
    if public_url:
        rows["local"] = server.base_url
    if known is None:
        rows["API key"] = f"create one: {vinery} key create --name NAME"
    else:
        rows["user"] = known.admin_user
        rows |= {"password": known.admin_password} if shows_password else {}
        rows |= {"API key": known.api_key} if shows_key else {}
        rows["saved in"] = f"{home.bootstrap_file} (user, password and API key)"
    rows["commands"] = f"{vinery} --help"
    rows["logs"] = f"{vinery} logs (in {home.logs})"
    rows["stop"] = f"Ctrl-C in its terminal, or: kill {server.pid}"
    return "\n".join(["running", "", *(f"  {name:<11}{text}" for name, text in rows.items()), ""])


def command_words() -> str:
    """How a user calls `vinery` from another shell, such as `VINERY_HOME=/srv/v /srv/w/bin/vinery`:
    the program of this environment, with the home or the configuration file if other shells do not
    find it."""
    script = Path(sys.executable).with_name("vinery")
    found = shutil.which("vinery")
    is_found = found is not None and Path(found).resolve() == script.resolve()
    words = shlex.quote("vinery" if is_found else str(script))
    named, home = env.text(config_file.VARIABLE), Home.from_env().path
    if home != default_path() and env.origin_of("VINERY_HOME") is None:
        words = f"VINERY_HOME={shlex.quote(str(home))} {words}"
    if Path(named).is_file():  # and is not /dev/null
        words = f"{config_file.VARIABLE}={shlex.quote(named)} {words}"
    return words
