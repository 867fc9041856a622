"""A platform that is attacked, beside a neighbour that asks ten times a second, and what holds
after each attack: refusals name the field, no request costs the web process more than a bound of
time and memory, and the neighbour is served.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pytest

from tests.conftest import Running, run_platform, until
from tests.hostile.case import Case
from tests.hostile.corpus import corpus
from tests.hostile.send import Target, fault_of, send
from tests.hostile.watch import Neighbour, Web, neighbour_of
from tests.system.clients import http_of, new_key, vinery
from vinery_serving.protocols.openapi import document

# CPU seconds of the web processes for one request: the worst need 1.2, on two processors that other
# tests keep busy, and twice as much where these are two threads of one core.
MOST_CPU_S: Final = 3.0
NUM_TRIES: Final = 3
# Part of one core that is busy when only the neighbour asks.
MOST_BUSY: Final = 0.5
IDLE_FOR_S: Final = 0.5
TIMEOUT_S: Final = 120.0
# Growth of each web process after the last request. A request once took gigabytes for good.
MOST_GROWN_MB: Final = 150.0
MOST_SHOWN: Final = 30


@cache
def contents() -> dict[str, Any]:
    """The OpenAPI document of a platform."""
    return document(version="1", max_body_mb=64)


@cache
def cases() -> tuple[Case, ...]:
    return corpus(contents())


@dataclass(frozen=True)
class Besieged:
    """A platform of these tests alone, with its neighbour."""

    running: Running
    target: Target
    neighbour: Neighbour
    web: Web
    memory_mb: Mapping[int, float]  # of each web process before the first request

    def attack(self, chosen: Sequence[Case]) -> None:
        begun_s = time.monotonic()
        faults = {case.name: fault for case in chosen if (fault := self._fault(case)) is not None}
        shown = [f"{name}: {fault}" for name, fault in faults.items()][:MOST_SHOWN]
        assert not faults, "\n".join([f"{len(faults)} of {len(chosen)}", *shown])
        self.wait_until_idle()
        self.neighbour.wait_for(4, time.monotonic())
        assert self.failures_of_neighbour(begun_s) == []

    def _fault(self, case: Case) -> str | None:
        """A case that costs too much, or is ended for the cost, is sent again, because other work
        of the machine may count."""
        fault, cost_s = None, 0.0
        for _ in range(NUM_TRIES):
            cpu_s = self.web.cpu_s()
            fault = fault_of(case, send(self.target, case))
            cost_s = self.web.cpu_s() - cpu_s
            if fault is None and cost_s <= MOST_CPU_S:
                return None
        return fault or f"took {cost_s:.1f} CPU seconds"

    def failures_of_neighbour(self, begun_s: float) -> list[int]:
        """The other statuses than 200 that the neighbour got since `begun_s`."""
        return [each for each in self.neighbour.since(begun_s) if each != 200]

    def wait_until_idle(self) -> None:
        """Until all processes together have left most of a core to others for a while."""
        begun = time.monotonic(), self.web.cpu_of_all_s()

        def is_idle() -> bool:
            nonlocal begun
            now = time.monotonic(), self.web.cpu_of_all_s()
            elapsed_s, used_s = now[0] - begun[0], now[1] - begun[1]
            if used_s > MOST_BUSY * max(elapsed_s, IDLE_FOR_S):
                begun = now
                return False
            return elapsed_s >= IDLE_FOR_S

        until(is_idle, timeout_s=TIMEOUT_S)

    def check_that_nothing_is_left(self) -> None:
        """No process works on, the memory is given back, no web process was replaced, and the log
        has no traceback."""
        self.wait_until_idle()
        until(lambda: self.most_grown_mb() < MOST_GROWN_MB, timeout_s=TIMEOUT_S)
        assert self.web.memory_of_each_mb().keys() == self.memory_mb.keys()
        log = self.running.log.read_text(encoding="utf-8", errors="replace")
        assert "Traceback" not in log

    def most_grown_mb(self) -> float:
        each_mb = self.web.memory_of_each_mb().items()
        return max(mb - self.memory_mb.get(pid, 0.0) for pid, mb in each_mb)


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with run_platform(tmp_path_factory.mktemp("besieged") / "home") as running:
        vinery(running, "organization", "create", "neighbours")
        vinery(running, "project", "create", "quiet", "--organization", "neighbours")
        quiet = new_key(running, "quiet", "--project", "neighbours/quiet")
        scopes = [word for name in ("inference", "usage", "manage") for word in ("--scope", name)]
        hostile = new_key(running, "hostile", *scopes)
        _warm_up(running)
        with neighbour_of(Target(running.base_url, quiet)) as neighbour:
            web = Web.of(running.pid)
            target = Target(running.base_url, hostile)
            yield Besieged(running, target, neighbour, web, web.memory_of_each_mb())


def _warm_up(running: Running) -> None:
    """Send a request of each kind: first loads are no growth."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    for path, content in (
        ("/v1/chat/completions", body),
        ("/v1/chat/completions", {**body, "guided_json": schema}),
        ("/v1/tokenize", {"prompt": "word " * 10_000}),
        ("/openapi.json", None),
        ("/accounts/login/", None),
    ):
        method = "GET" if content is None else "POST"
        with http_of(running) as client:
            answer = client.request(method, path, json=content)
        assert answer.status_code == 200, answer.text
