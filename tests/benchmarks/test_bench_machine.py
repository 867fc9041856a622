"""The settings of a benchmark, and what it needs of the machine and of Django."""

import socket
import time
from collections.abc import Callable

from benchmarks.load import Endpoint
from benchmarks.machine import WebCpu, wait_until_calm
from benchmarks.settings import settings_from
from tests.tables import table


def test_it_counts_the_work_of_the_process_that_listens_and_else_has_no_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        cpu = WebCpu(f"http://127.0.0.1:{server.getsockname()[1]}")
        before_s = cpu.used_s()
        own_s = time.process_time()
        sum(range(200_000))
        worked_s = time.process_time() - own_s
        after_s = cpu.used_s()

    assert before_s is not None
    assert after_s is not None
    assert after_s - before_s >= worked_s > 0

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert WebCpu(f"http://127.0.0.1:{port}").used_s() is None
    assert WebCpu("http://192.0.2.1:8000").used_s() is None


def looks(*busy: float) -> tuple[Callable[[float], float], Callable[[], float]]:
    """What the machine is found to be, and a clock that each look advances."""
    found, now_s = list(busy), [0.0]

    def look(seconds: float) -> float:
        now_s[0] += seconds
        return found.pop(0) if len(found) > 1 else found[0]

    return look, lambda: now_s[0]


@table(
    "busy, found",
    [
        ((0.02,), (True, 2.0, 0.02)),
        ((0.9, 0.5, 0.05), (True, 6.0, 0.05)),
        ((0.9,), (False, 120.0, 0.9)),
    ],
)
def test_it_waits_for_a_calm_machine_and_names_a_busy_one(
    busy: tuple[float, ...], found: tuple[bool, float, float]
) -> None:
    look, clock = looks(*busy)

    calm = wait_until_calm("server", busy_for=look, clock=clock)

    assert (calm.is_calm, calm.waited_s, calm.busy) == found


def test_it_measures_all_by_default_but_what_is_given_wins_and_never_reports_the_key() -> None:
    settings = settings_from([])
    assert settings.models == ("tiny-chat", "0.5b")
    assert settings.effort.streams == (1, 8, 32, 64)
    assert settings.server is None
    assert settings.parts == ("server", "speculation", "crowds")
    assert settings_from(["--only", "crowds"]).parts == ("crowds",)

    effort = settings_from(["--quick", "--streams", "64", "--tokens", "16"]).effort
    assert (effort.streams, effort.tokens, effort.rounds) == ((64,), 16, 1)

    settings = settings_from(["--server-url", "http://127.0.0.1:8000/", "--api-key", "secret"])
    assert settings.server == Endpoint("http://127.0.0.1:8000", "secret")
    assert "secret" not in str(settings.described)
    assert settings.described["server"] == "http://127.0.0.1:8000"
