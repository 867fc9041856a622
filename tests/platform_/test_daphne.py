"""Daphne, which is for development: the same lifespan as uvicorn's, and the limits of the edge."""

import pytest

from tests.platform_ import scripts
from tests.platform_ import test_edge_connections as connections
from tests.platform_ import test_edge_headers as headers

_END = """
import asyncio
from vinery_platform.process.daphne_server import end_lifespan

async def application(scope, receive, send):
    assert scope["type"] == "lifespan"
    for word in ("startup", "shutdown"):
        message = await receive()
        print(message["type"])
        await send({"type": f"lifespan.{word}.complete"})

asyncio.run(end_lifespan(application))
"""


@pytest.fixture(scope="module")
def kind() -> str:
    return "daphne"


def test_the_application_receives_startup_and_shutdown() -> None:
    result = scripts.run_python("-c", _END)

    assert result.stdout.split() == ["lifespan.startup", "lifespan.shutdown"], result.stderr


test_silence = connections.test_a_connection_that_sends_nothing_or_no_body_is_closed
test_a_trickle = connections.test_a_header_that_trickles_in_is_ended
test_an_idle_connection = (
    connections.test_an_idle_connection_outlives_the_time_for_headers_but_not_a_header
)
test_unread_answers = connections.test_a_client_that_does_not_read_its_answer_is_ended
test_one_address = connections.test_one_address_has_so_many_connections
test_early_leaves = connections.test_early_leaves_cause_no_traceback
test_the_end = connections.test_half_a_header_delays_no_stop
test_many_headers = headers.test_too_many_headers_are_refused
test_one_host = headers.test_a_request_names_one_host
test_two_packets = headers.test_a_header_may_end_in_two_packets
test_late_bodies = headers.test_a_body_after_its_answer_is_read_to_a_limit
test_one_answer = headers.test_no_request_has_two_answers
test_endless_requests = headers.test_an_endless_request_is_refused_and_costs_no_memory
test_pipelining = headers.test_pipelined_requests_are_answered_in_order
test_upgrades = headers.test_an_upgrade_is_answered_as_a_plain_request
test_leave_to_send = headers.test_a_client_that_waits_to_send_gets_leave_from_the_application
test_large_bodies = headers.test_a_large_body_arrives_whole
