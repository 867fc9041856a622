"""Background responses whose processes are killed go on, with the numbers of their events. Webhooks
are told of each end."""

import contextlib
import itertools
from typing import Any

import openai
import pytest

from tests.accounts.webhook_receiver import receiving
from tests.conftest import REPOSITORY, Running, until
from tests.docs.markdown import blocks
from tests.system.clients import platform_with, vinery
from tests.system.ledger import execute, rows
from tests.system.test_alerts import wake

pytestmark = pytest.mark.stores

NUM_TOKENS = 1500
LIMIT = 1_000_000
SET_LIMIT = f"limit set --platform --metric tokens --window day --amount {LIMIT}"


platform = platform_with(VINERY_WEBHOOK_NETWORKS="127.0.0.0/8")


def client_of(running: Running) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{running.base_url}/v1", api_key=running.api_key, max_retries=10, timeout=120
    )


@pytest.mark.parametrize("killed", [("web",), ("engine",), ("web", "engine", "node")], ids=str)
def test_a_response_goes_on_with_the_same_events(
    platform: Running, killed: tuple[str, ...]
) -> None:
    client = client_of(platform)
    # Then tokens are granted bit by bit, also those that are known already.
    vinery(platform, *SET_LIMIT.split())
    answer: Any = client.responses.with_raw_response.create(
        model="tiny-chat",
        input="Tell a long story.",
        max_output_tokens=NUM_TOKENS,
        background=True,
        extra_body={"ignore_eos": True},
    )
    begun = answer.parse()
    before = list(itertools.islice(client.responses.retrieve(begun.id, stream=True), 200))

    for role in killed:
        for process in platform.processes(role):
            process.kill()

    after = events_after(client, begun.id, before[-1].sequence_number)
    whole = list(client.responses.retrieve(begun.id, stream=True))
    numbers = [event.sequence_number for event in whole]
    assert numbers == list(range(len(whole)))
    assert whole[: len(before)] == before
    assert whole[len(before) :] == after
    final = whole[-1].response
    assert final.error is None
    assert final.status == "incomplete"  # by its limit
    assert final.usage.output_tokens == NUM_TOKENS
    text = "".join(each.delta for each in whole if each.type == "response.output_text.delta")
    assert final.output_text == text
    request_id = answer.headers["x-request-id"]
    (row,) = [row for row in rows(platform) if row.request_id == request_id]
    assert (row.num_output_tokens, row.is_exact) == (NUM_TOKENS, True)
    # What the killed process had reserved is free again, and what was used is counted once.
    until(lambda: is_counted_once(platform, client))


def is_counted_once(platform: Running, client: openai.OpenAI) -> bool:
    raw = client.chat.completions.with_raw_response.create(
        model="tiny-chat", messages=[{"role": "user", "content": "Hi"}], max_tokens=1
    )
    request_id, num_left = raw.headers["x-request-id"], raw.headers["x-ratelimit-remaining-tokens"]
    until(lambda: any(row.request_id == request_id for row in rows(platform)))
    num_used = sum(row.num_prompt_tokens + row.num_output_tokens for row in rows(platform))
    return int(num_left) == LIMIT - num_used


def events_after(client: openai.OpenAI, id_: str, number: int) -> list[Any]:
    """All further events, of as many connections as are needed."""
    events: list[Any] = []

    def is_over() -> bool:
        last = events[-1].sequence_number if events else number
        with contextlib.suppress(openai.APIError, OSError):
            stream = client.responses.retrieve(id_, stream=True, starting_after=last)
            events.extend(stream)
        return bool(events) and events[-1].type in ("response.incomplete", "response.failed")

    until(is_over, timeout_s=120)
    return events


def test_a_webhook_gets_the_signed_event_of_each_end(
    platform: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    client = client_of(platform)

    def begin(input: str, **more: Any) -> str:
        asked: Any = {"model": "tiny-chat", "input": input, "background": True}
        return client.responses.create(**asked, extra_body=more).id

    with receiving() as receiver:
        [(name,)] = execute(platform, "SELECT name FROM accounts_organization")
        added = vinery(
            platform, "alerts", "add-webhook", "ends", receiver.url, "--organization", name
        )
        [(number,)] = execute(platform, "SELECT id FROM accounts_webhook")
        vinery(platform, "alerts", "change-webhook", str(number), "--gets-responses")
        waits = begin("Tell a long story.", ignore_eos=True)
        expected = {begin("Hello!"): "completed", waits: "cancelled"}
        client.responses.cancel(waits)

        def is_told() -> bool:
            wake(platform, "sweep_deliveries")
            return len(receiver.requests) >= len(expected)

        until(is_told, timeout_s=60)
    unwrap = openai.OpenAI(api_key="unused").webhooks.unwrap
    secret = added.splitlines()[-1]
    events: list[Any] = [
        unwrap(body, headers, secret=secret) for _, headers, body in receiver.requests
    ]
    told = {event.data.id: event.type for event in events}
    assert told == {id_: f"response.{status}" for id_, status in expected.items()}
    for id_, status in expected.items():
        assert client.responses.retrieve(id_).status == status

    # As the guide reads them.
    guide = REPOSITORY / "docs" / "guides" / "agents.md"
    [program] = [each.text for each in blocks(guide) if "unwrap" in each.text]
    for _, headers, body in receiver.requests:
        known = {"client": client, "body": body, "headers": headers}
        exec(program.replace("whsec_...", secret), known)
    answered = [id_ for id_, status in expected.items() if status == "completed"]
    assert capsys.readouterr().out == f"{client.responses.retrieve(answered[0]).output_text}\n"
