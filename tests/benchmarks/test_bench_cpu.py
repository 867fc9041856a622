"""The time of the web process is found by the port that it listens on."""

import socket
import time

from benchmarks.cpu import WebCpu


def test_it_counts_the_work_of_the_process_that_listens() -> None:
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


def test_it_has_no_number_without_listeners_and_for_another_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert WebCpu(f"http://127.0.0.1:{port}").used_s() is None
    assert WebCpu("http://192.0.2.1:8000").used_s() is None
