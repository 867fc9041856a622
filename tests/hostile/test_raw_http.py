"""Wrong raw HTTP is refused or the connection is closed, the next client is served, and the log has
no traceback. A body whose end is not certain: tests/platform_/test_edge_headers.py"""

import httpx
import pytest

from tests.conftest import Running
from tests.hostile import raw_http
from tests.hostile.raw_http import Answer, Request, in_chunks, with_length
from tests.hostile.send import Target

pytestmark = pytest.mark.system

SEED = 11
NUM_MUTATIONS = 400
NUM_PIPELINED = 100
MOST_MEMORY_GROWN = 100e6


def memory(running: Running) -> int:
    return sum(each.memory_info().rss for each in running.processes("web"))


def ask(running: Running, *requests: Request) -> list[tuple[Request, Answer]]:
    """Send all requests. Check that each answer is HTTP, that no request makes the server fail, and
    that the next client is served."""
    before, address = memory(running), Target(running.base_url, "").address
    answers = list(zip(requests, raw_http.ask_all(address, requests), strict=True))
    for request, answer in answers:
        assert not [status for status in answer.statuses() if status >= 500], (request, answer)
    assert httpx.get(f"{running.base_url}/livez", timeout=60).status_code == 200
    assert "Traceback" not in running.log.read_text(errors="replace")
    assert memory(running) - before < MOST_MEMORY_GROWN
    return answers


def test_right_requests_are_answered_whole_pipelined_and_in_tiny_parts(running: Running) -> None:
    forms = with_length(running.api_key.encode()), in_chunks(running.api_key.encode(), b"{", b"}")
    answers = ask(running, *(Request("right", [form]) for form in forms))

    assert [answer.statuses() for _, answer in answers] == [[400], [400]]
    assert all(b"messages" in answer.received for _, answer in answers)

    data = b"".join(
        b"GET /v1/models/m%d HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n\r\n"
        % (number, running.api_key.encode())
        for number in range(NUM_PIPELINED)
    )
    ((_, answer),) = ask(running, Request("pipelined", [data]))

    assert answer.statuses() == [404] * NUM_PIPELINED
    starts = [answer.received.index(b"`m%d`" % number) for number in range(NUM_PIPELINED)]
    assert starts == sorted(starts)

    whole = with_length(running.api_key.encode())
    parts = [whole[at : at + 1] for at in range(len(whole))]
    ((_, answer),) = ask(running, Request("byte by byte", parts))

    assert answer.statuses() == [400]

    anonymous = with_length(b"vny_live_unknown")
    ask(running, *(Request("leaves", [anonymous], closes=True) for _ in range(50)))
    ask(running, Request("livez", [raw_http.LIVEZ]))


def test_odd_truncated_and_mutated_requests_are_answered_or_refused(running: Running) -> None:
    answers = ask(running, *raw_http.tolerated(running.api_key.encode()))

    assert [request.name for request, answer in answers if answer == Answer(b"", False)] == []

    for request, answer in ask(running, *raw_http.truncated(running.api_key.encode())):
        assert set(answer.statuses()) <= {400, 408}, (request, answer)

    ask(running, *raw_http.mutated(running.api_key.encode(), SEED, NUM_MUTATIONS))
