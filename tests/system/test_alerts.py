"""Alerts of a running platform: whatever becomes of the receiver and of a worker, each threshold
of a quota is reported, once, signed.

The clock of the tries is minutes; here what waits is made due at once, and another worker begins.
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.accounts.webhook_receiver import Receiver, receiving
from tests.conftest import Running, run_platform, until
from tests.system.clients import vinery
from tests.system.ledger import execute, rows
from tests.system.limiting import ask, limit


@pytest.mark.stores
def test_each_threshold_is_delivered_despite_bad_answers_and_kills(tmp_path: Path) -> None:
    settings = {"VINERY_WEBHOOK_NETWORKS": "127.0.0.0/8", "VINERY_ALERT_AT": "50,80,100"}
    with receiving() as receiver, run_platform(tmp_path / "home", settings) as platform:
        check_deliveries(platform, receiver)


def check_deliveries(platform: Running, receiver: Receiver) -> None:
    result = vinery(platform, "alerts", "add-webhook", "ours", receiver.url)
    secret = result.splitlines()[-1]
    limit(platform, "output_tokens", "day", 100)

    # Half of it, and a receiver that fails twice.
    receiver.statuses = [500, 500, 204]
    use(platform, 50)
    wake(platform, "check_quotas")
    for num_tries in (1, 2):
        until(lambda num=num_tries: states(platform) == [("pending", num, "answered 500")])
        make_due(platform)
        wake(platform, "sweep_deliveries")
    until(lambda: states(platform) == [("sent", 3, "")])
    found = events(receiver, secret)
    assert [event["data"]["threshold_percent"] for event in found] == [50] * 3
    assert len({event["id"] for event in found}) == 1

    # Four fifths, and a worker that dies while it sends.
    receiver.may_answer.clear()
    use(platform, 30)
    worker = begin(platform, "check_quotas")
    until(lambda: len(receiver.requests) == 4)
    worker.kill()
    worker.wait()
    receiver.may_answer.set()
    make_due(platform)
    wake(platform, "sweep_deliveries")
    until(lambda: states(platform) == [("sent", 3, ""), ("sent", 2, "")])

    # The whole quota.
    use(platform, 20)
    wake(platform, "check_quotas")
    until(lambda: states(platform) == [("sent", 3, ""), ("sent", 2, ""), ("sent", 1, "")])

    wake(platform, "check_quotas")
    wake(platform, "sweep_deliveries")
    found = events(receiver, secret)
    assert [event["data"]["threshold_percent"] for event in found] == [50, 50, 50, 80, 80, 100]
    assert len({event["id"] for event in found}) == 3
    assert found[-1]["data"]["used"] == 100
    assert "100" in vinery(platform, "alerts", "list")


def use(platform: Running, num_tokens: int) -> None:
    """Request so many tokens, and wait until they are in the ledger."""
    before = len(rows(platform))
    answer = ask(platform, num_tokens)
    assert answer.json()["usage"]["completion_tokens"] == num_tokens
    until(lambda: len(rows(platform)) > before)


# A worker of one task, and of the tasks that follow from it.
_WORKER = """
from vinery_platform.cli.shape import load_django
load_django()
from vinery_platform.celery import app
from vinery_accounts import tasks
app.conf.task_always_eager = True
tasks.{}()
"""


def begin(platform: Running, task: str) -> subprocess.Popen[bytes]:
    """Start a worker beside that of the platform, for a task of each minute."""
    words = [sys.executable, "-c", _WORKER.format(task)]
    return subprocess.Popen(words, env=platform.environment)


def wake(platform: Running, task: str) -> None:
    """Run a task of each minute to its end."""
    assert begin(platform, task).wait(timeout=60) == 0


def make_due(platform: Running) -> None:
    """As if the time until the next try, or the lease of a dead worker, were over."""
    now = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
    execute(
        platform, "UPDATE accounts_delivery SET due_at = ?, error = '' WHERE state = 'pending'", now
    )


def states(platform: Running) -> list[tuple[str, int, str]]:
    """Of all deliveries, oldest first: how often each was tried, and how that ended."""
    found = execute(platform, "SELECT state, num_tries, error FROM accounts_delivery ORDER BY id")
    return [(state, num, error[-13:].strip(" .")) for state, num, error in found]


def events(receiver: Receiver, secret: str) -> list[Any]:
    """The events that arrived, each checked by a library that knows nothing of us."""
    checker = openai.OpenAI(api_key="unused")
    for _, headers, body in receiver.requests:
        checker.webhooks.verify_signature(body, headers, secret=secret)
    return [json.loads(body) for _, _, body in receiver.requests]
