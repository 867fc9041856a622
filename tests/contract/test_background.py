"""Background responses through openai-python."""

import time
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import Running, until
from tests.system.clients import openai_of
from tests.system.ledger import rows

from .tiny_chat import CAPITAL, MODEL, PARIS

_LONG = "Tell me a long story."
_WAIT_S = 60.0


@pytest.fixture
def v1(running: Running) -> openai.OpenAI:
    return openai_of(running)


def begin(client: openai.OpenAI, input: Any = CAPITAL, **fields: Any) -> Any:
    return client.responses.create(model=MODEL, input=input, background=True, **fields)


def ended(client: openai.OpenAI, response: Any) -> Any:
    give_up_at = time.monotonic() + _WAIT_S
    while response.status in ("queued", "in_progress"):
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
        response = client.responses.retrieve(response.id)
    return response


def test_it_is_queued_at_once_and_read_when_it_has_ended(v1: openai.OpenAI) -> None:
    queued = begin(v1, metadata={"a": "b"})

    assert (queued.status, queued.output, queued.usage) == ("queued", [], None)
    whole = ended(v1, queued)
    assert (whole.id, whole.status, whole.output_text) == (queued.id, "completed", PARIS)
    assert (whole.background, whole.metadata) == (True, {"a": "b"})
    assert whole.usage.output_tokens > 5
    assert v1.responses.cancel(whole.id) == whole
    second = v1.responses.create(model=MODEL, input="Again?", previous_response_id=whole.id)
    assert second.usage.input_tokens > whole.usage.input_tokens  # type: ignore[union-attr]


def test_its_stream_is_taken_up_after_any_event(v1: openai.OpenAI) -> None:
    first = []
    for event in begin(v1, stream=True):
        first.append(event)
        if len(first) == 6:
            break  # the client leaves, and the response goes on
    id_ = first[0].response.id

    rest = list(v1.responses.retrieve(id_, stream=True, starting_after=first[-1].sequence_number))
    whole = list(v1.responses.retrieve(id_, stream=True))

    assert [event.type for event in whole[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert [event.sequence_number for event in whole] == list(range(len(whole)))
    assert whole == first + rest
    assert whole[-1].response.output_text == PARIS
    for known in ({}, {"starting_after": 6}):
        with v1.responses.stream(response_id=id_, **known) as stream:
            assert stream.get_final_response().output_text == PARIS
    padded: Any = list(v1.responses.retrieve(id_, stream=True, include_obfuscation=True))
    deltas = [event for event in padded if event.type == "response.output_text.delta"]
    assert deltas
    assert all("obfuscation" in event.to_dict() for event in deltas)
    assert [event.type for event in padded] == [event.type for event in whole]
    for name in ("stream", "include_obfuscation", "starting_after"):
        wrong = {"stream": "true", name: "yes"}
        with pytest.raises(openai.BadRequestError) as refused:
            v1.responses.retrieve(id_, extra_query=wrong)
        assert refused.value.param == name


def test_it_is_cancelled_while_it_waits_or_runs(v1: openai.OpenAI) -> None:
    queued = begin(v1, _LONG, max_output_tokens=1900, extra_body={"ignore_eos": True})

    cancelled = v1.responses.cancel(queued.id)

    assert cancelled.status == v1.responses.retrieve(queued.id).status == "cancelled"
    plain = v1.responses.create(model=MODEL, input=CAPITAL)
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        v1.responses.cancel(plain.id)
    with pytest.raises(openai.BadRequestError, match="can no longer be streamed"):
        list(v1.responses.retrieve(plain.id, stream=True))


def test_it_ends_and_is_charged_when_it_is_deleted(v1: openai.OpenAI, running: Running) -> None:
    raw = v1.responses.with_raw_response.create(
        model=MODEL, input=_LONG, background=True, stream=True,
        max_output_tokens=1900, extra_body={"ignore_eos": True},
    )  # fmt: skip
    events: Any = iter(raw.parse())
    id_ = next(events).response.id
    while next(events).type != "response.output_text.delta":
        pass

    with pytest.raises(openai.BadRequestError, match="is in_progress") as refused:
        v1.responses.create(model=MODEL, input=CAPITAL, previous_response_id=id_)
    assert refused.value.code == "previous_response_not_continuable"
    v1.responses.delete(id_)

    with pytest.raises(openai.NotFoundError):
        v1.responses.retrieve(id_)
    list(events)  # the stream ends
    asked = raw.headers["x-request-id"]
    until(lambda: [row for row in rows(running) if row.request_id == asked])
    (row,) = (row for row in rows(running) if row.request_id == asked)
    assert 0 < row.num_output_tokens < 1900


def test_what_cannot_run_is_refused_at_once(v1: openai.OpenAI, raw: httpx.Client) -> None:
    with pytest.raises(
        openai.BadRequestError, match="`background` needs a response that is stored"
    ):
        begin(v1, store=False)
    with pytest.raises(openai.NotFoundError):
        v1.responses.create(model="nothing", input=CAPITAL, background=True)
    with pytest.raises(openai.BadRequestError, match="not found"):
        begin(v1, previous_response_id="resp_0")


def test_a_websocket_is_refused_with_the_status_after_which_codex_uses_http(
    raw: httpx.Client,
) -> None:
    asks = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}

    answer = raw.get("/v1/responses", headers=asks)

    assert (answer.status_code, answer.json()["error"]["code"]) == (426, "upgrade_required")
