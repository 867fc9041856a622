"""A neighbour of hostile clients: asks ten times a second, and notes how long it waits.

A process of its own, so that it shares no interpreter with the sender of hostile requests. It
asks `/livez` and a chat for one token, each on a connection of its own, at fixed times: a request
that is due while another one waits has waited since it was due. The times are those of the
system's monotonic clock, which all processes of a machine share.

Reads the key from standard input, and writes a line of JSON for each answer.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

INTERVAL_S: Final = 0.1
LIVEZ: Final = "livez"
CHAT: Final = "chat"
# Longer than anything that is measured, and shorter than for ever.
_TIMEOUT_S: Final = 120.0
_BODY: Final = json.dumps(
    {
        "model": "tiny-chat",
        "messages": [{"role": "user", "content": "Write one word."}],
        "max_tokens": 1,
        "temperature": 0,
    }
)


@dataclass(frozen=True)
class Answer:
    """One answer. `status` is 0 where there was none."""

    what: str
    due_s: float
    wait_s: float
    status: int

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, line: str) -> Answer:
        return cls(**json.loads(line))


def main() -> int:
    """Ask until standard input ends."""
    address = urlsplit(sys.argv[1])
    host, port = address.hostname or "127.0.0.1", address.port or 80
    key = sys.stdin.readline().strip()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    for what, method, path, body in (
        (LIVEZ, "GET", "/livez", None),
        (CHAT, "POST", "/v1/chat/completions", _BODY),
    ):
        asked = _Asked(what, method, path, body, headers if body else {})
        threading.Thread(target=_ask_for_ever, args=(host, port, asked), daemon=True).start()
    sys.stdin.read()
    return 0


@dataclass(frozen=True)
class _Asked:
    what: str
    method: str
    path: str
    body: str | None
    headers: Mapping[str, str]


def _ask_for_ever(host: str, port: int, asked: _Asked) -> None:
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    due_s = time.monotonic()
    while True:
        time.sleep(max(0.0, due_s - time.monotonic()))
        status = _status(connection, asked)
        answer = Answer(asked.what, due_s, time.monotonic() - due_s, status)
        # One write for a line: both threads write.
        sys.stdout.write(answer.line() + "\n")
        sys.stdout.flush()
        due_s += INTERVAL_S


def _status(connection: HTTPConnection, asked: _Asked) -> int:
    """The status of the answer, or 0. The next request begins with a new connection then."""
    try:
        connection.request(asked.method, asked.path, asked.body, dict(asked.headers))
        response = connection.getresponse()
        response.read()
        return response.status
    except (OSError, HTTPException):
        connection.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
