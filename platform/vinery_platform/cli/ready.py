"""`vinery ready`: is the server of this machine ready?

Standard library only, for the supervisor.
"""

import argparse
import json
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from vinery_platform.cli.shape import Failure
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home
from vinery_platform.config.notes import RunningServer
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
