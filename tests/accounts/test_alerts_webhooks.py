"""Webhooks are signed so that other libraries can verify them.

They do not reach private addresses.
"""

import json
import socket
import time
from datetime import timedelta
from typing import Any

import httpcore2
import openai
import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone
from webhook_receiver import Receiver

from tests.outbound.recording import RecordedNetwork
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.alerts import webhooks
from vinery_accounts.alerts.webhooks import NotDelivered
from vinery_accounts.models import AuditEntry, Webhook
from vinery_accounts.models.alerts import check_url
from vinery_accounts.outbound.addresses import AddressRefused, read_networks


def send_to(url: str) -> str:
    """Send the test event to a new webhook, and return its secret."""
    webhook, secret = webhooks.make("ours", url)
    webhooks.send(webhook, webhooks.test_event())
    return secret


def sent(receiver: Receiver) -> tuple[dict[str, str], bytes, str]:
    secret = send_to(receiver.url)
    [(path, headers, body)] = receiver.requests
    assert path == "/hook?from=vinery"
    return headers, body, secret


def verify(body: bytes, headers: dict[str, str], secret: str) -> None:
    """Verify a message with openai-python, an independent implementation."""
    client = openai.OpenAI(api_key="unused")
    client.webhooks.verify_signature(body, headers, secret=secret)


def test_another_library_accepts_the_signature_of_this_message_now(receiver: Receiver) -> None:
    headers, body, secret = sent(receiver)
    verify(body, headers, secret)
    assert json.loads(body)["type"] == "webhook.test"
    assert json.loads(body)["id"] == headers["webhook-id"]
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30

    later = str(int(headers["webhook-timestamp"]) + 1)
    for changed in (
        (body + b" ", headers, secret),
        (body, headers, webhooks.new_secret()),
        (body, headers | {"webhook-timestamp": later}, secret),
        (body, headers | {"webhook-id": headers["webhook-id"] + "x"}, secret),
    ):
        with pytest.raises(openai.InvalidWebhookSignatureError):
            verify(*changed)

    secret, body, then_s = webhooks.new_secret(), b"{}", int(time.time()) - 600
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(then_s),
        "webhook-signature": webhooks.sign(secret, "evt_1", then_s, body),
    }
    with pytest.raises(openai.InvalidWebhookSignatureError, match="old"):
        verify(body, headers, secret)


def test_a_secret_is_in_no_table_or_log_and_fails_the_delivery_when_unreadable(
    db: None, receiver: Receiver, settings: Any
) -> None:
    webhook, secret = webhooks.make("ours", "https://hooks.example.com/")
    changes.add(webhook)
    stored = Webhook.objects.values().get()
    result = list(AuditEntry.objects.values("action", "before", "after"))
    assert [entry["action"] for entry in result] == ["webhook.create"]
    assert secret.removeprefix("whsec_") not in json.dumps([stored, result], default=str)
    assert "secret" not in result[0]["after"]

    webhook, _ = webhooks.make("ours", receiver.url)
    settings.SECRET_KEY = "another key of Django, as long as it has to be, and quite random"
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(NotDelivered, match="create the webhook again"):
        webhooks.send(webhook, webhooks.test_event())
    assert not receiver.requests


# -- Rotation


def arrived(receiver: Receiver, webhook: Webhook) -> tuple[bytes, dict[str, str]]:
    """Return the message that is sent now by a process that reads the webhook again."""
    receiver.requests.clear()
    webhooks.send(Webhook.objects.get(pk=webhook.pk), webhooks.test_event())
    [(_, headers, body)] = receiver.requests
    return body, headers


def test_after_a_rotation_both_secrets_are_accepted_until_the_old_one_expires_or_leaks(
    receiver: Receiver, db: None
) -> None:
    webhook, old = webhooks.make("ours", receiver.url)
    changes.add(webhook)
    new = webhooks.rotate(webhook, timedelta(hours=1))
    message = arrived(receiver, webhook)
    assert len(message[1]["webhook-signature"].split(" ")) == 2
    verify(*message, old)
    verify(*message, new)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        verify(*message, webhooks.new_secret())
    Webhook.objects.update(previous_secret_until=timezone.now() - timedelta(seconds=1))
    message = arrived(receiver, webhook)
    verify(*message, new)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        verify(*message, old)

    entry = AuditEntry.objects.get(action="webhook.rotate")
    assert set(entry.after or {}) == {"previous_secret_until"}
    rows = [*Webhook.objects.values(), *AuditEntry.objects.values("before", "after")]
    stored = json.dumps(rows, default=str)
    for secret in (old, new):
        assert secret.removeprefix("whsec_") not in stored

    newest = webhooks.rotate(webhook, timedelta(0))
    message = arrived(receiver, webhook)

    verify(*message, newest)
    for secret in (old, new):
        with pytest.raises(openai.InvalidWebhookSignatureError):
            verify(*message, secret)
    assert Webhook.objects.get().previous_secret == ""
    assert AuditEntry.objects.filter(action="webhook.rotate").count() == 2
    assert 'previous_secret"' not in json.dumps([*AuditEntry.objects.values("before", "after")])


# -- Addresses


def test_urls_are_public_with_tls_or_of_allowed_networks(settings: Any) -> None:
    assert check_url("https://8.8.8.8:8443/hook").port == 8443
    assert check_url("https://[64:ff9b::808:808]/hook").is_tls  # a network without IPv4
    for url, reason in (
        ("http://8.8.8.8/hook", "https"),
        ("https://192.168.0.1/hook", "not public"),
        ("https://[::ffff:127.0.0.1]/hook", "not public"),
    ):
        with pytest.raises(AddressRefused, match=reason):
            check_url(url)

    settings.VINERY_WEBHOOK_NETWORKS = read_networks(["10.0.0.0/8"])

    assert not check_url("http://10.1.2.3/hook").is_tls
    for refused in ("http://8.8.8.8/", "http://192.168.0.1/", "https://192.168.0.1/"):
        with pytest.raises(AddressRefused):
            check_url(refused)


@table(
    "url",
    [*("", "https://user:word@example.com/", "https://ex\u00e4mple.com/", "http://example.com/")],
)
def test_an_invalid_url_is_refused_when_a_webhook_is_created(db: None, url: str) -> None:
    with pytest.raises(ValidationError):
        changes.add(webhooks.make("ours", url)[0])
    assert not Webhook.objects.exists()


class RefusingNetwork(RecordedNetwork):
    """A network of hosts that refuse each connection."""

    async def connect_tcp(self, host: str, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        self.connected.append(host)
        raise httpcore2.ConnectError from ConnectionRefusedError()


def connected_to(monkeypatch: pytest.MonkeyPatch, message: str, *answers: list[str]) -> list[str]:
    """The addresses of the connections of one delivery, which fails with this message, when the
    name server returns these answers in order."""
    network = RefusingNetwork(names={"hooks.example.com": answers})
    monkeypatch.setattr(webhooks, "CLIENT", network.client())
    with pytest.raises(NotDelivered, match=message):
        send_to("https://hooks.example.com/")
    return network.connected


def test_only_public_addresses_of_a_name_are_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connected_to(monkeypatch, "not public", ["8.8.8.8", "127.0.0.1"]) == []
    # A second query for the name would return a private address.
    answers = ["8.8.8.8"], ["127.0.0.1"]
    assert connected_to(monkeypatch, "ConnectionRefused", *answers) == ["8.8.8.8"]
    both = ["2606:4700::1111", "8.8.8.8"]
    assert connected_to(monkeypatch, "ConnectionRefused", both) == both


def test_a_slow_receiver_is_disconnected(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.VINERY_WEBHOOK_NETWORKS = read_networks(["127.0.0.0/8"])
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(NotDelivered, match="No answer within"),
    ):
        send_to(f"http://127.0.0.1:{server.getsockname()[1]}/")
