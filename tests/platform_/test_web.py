"""One web process, before it serves."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from vinery.cli import web
from vinery.process import heartbeats, uvicorn_server


@pytest.fixture
def switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switch_interval")
def test_threads_give_the_event_loop_the_global_lock_within_half_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[float] = []

    def serve(*_: Any, **__: Any) -> None:
        served.append(sys.getswitchinterval())

    monkeypatch.setattr(uvicorn_server, "serve", serve)
    monkeypatch.setattr(heartbeats, "end", lambda: None)
    monkeypatch.setattr(web, "_application", lambda: None)
    monkeypatch.setattr(web, "start_django", lambda: None)
    monkeypatch.setenv("VINERY_SERVER", "uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert web.run(argparse.Namespace(fd=server.detach())) == 0

    assert served == [pytest.approx(0.0005)]
