"""Alerts as signed HTTP requests, as standardwebhooks.com has them: libraries of many languages
check them, openai-python's `client.webhooks` among them.

    POST <path>
    webhook-id         the event's id: the same in every try, so that doubles are seen
    webhook-timestamp  Unix seconds of this try: receivers refuse what is older than five minutes
    webhook-signature  v1,<base64 of HMAC-SHA-256 over "id.timestamp.body">; while a secret that was
                       rotated is still good there are two, with a blank between them

The key of the HMAC is what follows `whsec_` in the secret, decoded from base64. Any 2xx is taken
for an answer; redirects are not followed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from accounts.base import encryption
from accounts.base.encryption import cipher
from accounts.base.networks import AddressRefused, Target, check_url, resolve
from accounts.models import Alert, KeyEvent, KeyReminder, Organization, Webhook
from accounts.services import audit

TIMEOUT_S: Final = 10.0
USUAL_GRACE: Final = timedelta(days=1)
MAX_GRACE: Final = timedelta(days=30)
_PREFIX: Final = "whsec_"
_PURPOSE: Final = b"vinery webhooks"
_KEY_EVENTS: Final = {
    KeyEvent.EXPIRES: "key.expires_soon",
    KeyEvent.ROTATION: "key.rotation_due_soon",
}


class NotDelivered(Exception):
    """The receiver did not take it. The message says why, without anything that it sent."""


def new_secret() -> str:
    """Of 256 bits."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def make(name: str, url: str, organization: Organization | None = None) -> tuple[Webhook, str]:
    """A webhook that is not stored yet, and its secret, which is told now and never again."""
    secret = new_secret()
    return Webhook(name=name, url=url, organization=organization, secret=seal(secret)), secret


def seal(secret: str) -> str:
    """For the database."""
    return cipher(_PURPOSE).encrypt(secret.encode()).decode()


def reencrypted(encrypted: str) -> str:
    """The same secret under the newest of Django's keys. Raises
    `cryptography.fernet.InvalidToken`."""
    return encryption.reencrypted(_PURPOSE, encrypted)


def rotate(webhook: Webhook, grace: timedelta) -> str:
    """Give a stored webhook a new secret, which is returned now and never again.

    For the time of `grace` the one before signs, too: its receivers take either, and so have
    that time to be changed. One from before that signs no more.
    """
    secret, now = new_secret(), timezone.now()
    with audit.writing():
        stored = Webhook.objects.select_for_update().get(pk=webhook.pk)
        until = {"previous_secret_until": stored.previous_secret_until}
        webhook.previous_secret = stored.secret if grace else ""
        webhook.previous_secret_until = now + grace if grace else None
        webhook.secret = seal(secret)
        webhook.save(update_fields=["secret", "previous_secret", "previous_secret_until"])
        after = {"previous_secret_until": webhook.previous_secret_until}
        audit.record("rotate", webhook, before=until, after=after)
    return secret


def sign(secret: str, event_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    signed = f"{event_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def event_of(subject: Alert | KeyReminder) -> dict[str, Any]:
    """What receivers are told."""
    return _of_alert(subject) if isinstance(subject, Alert) else _of_reminder(subject)


def _of_reminder(reminder: KeyReminder) -> dict[str, Any]:
    return {
        "id": f"evt_key_{reminder.pk}",
        "type": _KEY_EVENTS[KeyEvent(reminder.event)],
        "created_at": reminder.created_at.isoformat(),
        "data": {
            "key_id": reminder.key_id,
            "name": reminder.key_name,
            "hint": reminder.hint,
            "owner": reminder.owner_name,
            "project": reminder.project_name,
            "happens_at": reminder.happens_at.isoformat(),
            "days_before": reminder.days_before,
        },
    }


def _of_alert(alert: Alert) -> dict[str, Any]:
    resets_at, runs_out_at = alert.resets_at, alert.runs_out_at
    return {
        "id": f"evt_alert_{alert.pk}",
        "type": "quota.threshold_reached",
        "created_at": alert.created_at.isoformat(),
        "data": {
            "limit_id": alert.limit_id,
            "scope": alert.scope,
            "whose": alert.whose,
            "metric": alert.metric,
            "window": alert.window,
            "amount": alert.amount,
            "used": alert.num_used,
            "threshold_percent": alert.percent,
            "is_shadow": alert.is_shadow,
            "window_start": alert.window_start.isoformat(),
            "resets_at": resets_at and resets_at.isoformat(),
            "runs_out_at": runs_out_at and runs_out_at.isoformat(),
        },
    }


def test_event() -> dict[str, Any]:
    """Something harmless, to see whether it arrives."""
    return {
        "id": f"evt_test_{secrets.token_hex(8)}",
        "type": "webhook.test",
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "data": {},
    }


def send(webhook: Webhook, event: Mapping[str, Any]) -> None:
    """Raises `NotDelivered`."""
    body = json.dumps(event, separators=(",", ":")).encode()
    now_s = int(time.time())
    signatures = [sign(secret, str(event["id"]), now_s, body) for secret in _secrets(webhook)]
    headers = {
        "content-type": "application/json",
        "user-agent": "Vinery",
        "webhook-id": str(event["id"]),
        "webhook-timestamp": str(now_s),
        "webhook-signature": " ".join(signatures),
    }
    try:
        target = check_url(webhook.url)
        status = _post(target, resolve(target), headers, body)
    except AddressRefused as error:
        raise NotDelivered(str(error)) from None
    except (OSError, http.client.HTTPException) as error:
        raise NotDelivered(f"No answer: {type(error).__name__}.") from None
    if not 200 <= status < 300:
        raise NotDelivered(f"The receiver answered {status}.")


def _secrets(webhook: Webhook) -> Iterator[str]:
    """Those that are good now, the newest first. Raises `NotDelivered`."""
    yield _unsealed(webhook.secret)
    until = webhook.previous_secret_until
    if until is not None and until > timezone.now():
        yield _unsealed(webhook.previous_secret)


def _unsealed(sealed: str) -> str:
    from cryptography.fernet import InvalidToken

    try:
        return cipher(_PURPOSE).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise NotDelivered(
            "The secret cannot be read: Django's key has changed. Rotate it without a time of "
            "grace, or make the webhook anew."
        ) from None


def _post(target: Target, address: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status. Neither names nor environment variables lead elsewhere than to `address`."""
    connection = http.client.HTTPConnection(target.host, target.port)
    default_port = 443 if target.is_tls else 80
    host = f"[{target.host}]" if ":" in target.host else target.host
    named = host if target.port == default_port else f"{host}:{target.port}"
    connected = socket.create_connection((address, target.port), TIMEOUT_S)
    with connected as plain, _ended_in_time(plain):
        stream = plain
        if target.is_tls:
            context = ssl.create_default_context()
            stream = context.wrap_socket(plain, server_hostname=target.host)
        with stream:
            connection.sock = stream
            connection.request("POST", target.path, body, {"host": named, **headers})
            return connection.getresponse().status


@contextmanager
def _ended_in_time(stream: socket.socket) -> Iterator[None]:
    """Timeouts of sockets are for each byte, and a receiver may send its headers slowly."""

    # A copy: TLS takes the socket over.
    handle = stream.dup()

    def end() -> None:
        with contextlib.suppress(OSError):
            handle.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(TIMEOUT_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        handle.close()
