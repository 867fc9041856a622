"""Messages as signed HTTP requests, by the specification of standardwebhooks.com.

Libraries for many languages check the signature, among them openai-python's `client.webhooks`.

    POST <path>
    webhook-id         the event's id, equal in every try, so that receivers detect repeats
    webhook-timestamp  Unix seconds of this try: receivers refuse requests older than five minutes
    webhook-signature  v1,<base64 of HMAC-SHA-256 over "id.timestamp.body">; two of these with a
                       blank between them during the grace period of a rotated secret

The key of the HMAC is the text after `whsec_` in the secret, decoded from base64. Any 2xx is a
success; redirects are not followed.
"""

import asyncio
import base64
import functools
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone

from vinery_accounts.access import audit
from vinery_accounts.base.encryption import cipher
from vinery_accounts.models import Alert, Organization, Webhook
from vinery_accounts.models.alerts import WEBHOOK_PURPOSE, check_address, check_url
from vinery_accounts.outbound.addresses import AddressRefused
from vinery_accounts.outbound.client import Client, ExchangeFailed, lookups_of
from vinery_accounts.outbound.urls import Url

TIMEOUT_S: Final = 10.0
CLIENT: Final = Client()
USUAL_GRACE: Final = timedelta(days=1)
MAX_GRACE: Final = timedelta(days=30)
_PREFIX: Final = "whsec_"


class NotDelivered(Exception):
    """The message was not delivered. The error's text contains nothing from the receiver."""


def new_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def make(
    name: str, url: str, organization: Organization | None = None, **columns: Any
) -> tuple[Webhook, str]:
    secret = new_secret()
    known = {"name": name, "url": url, "organization": organization, **columns}
    return Webhook(**known, secret=_encrypted(secret)), secret


def _encrypted(secret: str) -> str:
    return cipher(WEBHOOK_PURPOSE).encrypt(secret.encode()).decode()


def rotate(webhook: Webhook, grace: timedelta) -> str:
    """Give a stored webhook a new secret and return it. The secret is shown only once. During
    `grace` the old secret signs as well, so that receivers can be changed meanwhile. An even older
    secret stops signing."""
    secret, now = new_secret(), timezone.now()
    with audit.writing():
        stored = Webhook.objects.select_for_update().get(pk=webhook.pk)
        until = {"previous_secret_until": stored.previous_secret_until}
        webhook.previous_secret = stored.secret if grace else ""
        webhook.previous_secret_until = now + grace if grace else None
        webhook.secret = _encrypted(secret)
        webhook.save(update_fields=["secret", "previous_secret", "previous_secret_until"])
        after = {"previous_secret_until": webhook.previous_secret_until}
        audit.record("rotate", webhook, before=until, after=after)
    return secret


def sign(secret: str, event_id: str, timestamp_s: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    signed = f"{event_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


_DATA: Final = (
    *("limit_id", "scope", "whose", "metric", "window", "amount", "used", "threshold_percent"),
    *("is_shadow", "window_start", "resets_at", "runs_out_at"),
)
# The columns with other names than the data.
_COLUMNS: Final = {"used": "num_used", "threshold_percent": "percent"}


def event_of(alert: Alert) -> dict[str, Any]:
    data = {name: getattr(alert, _COLUMNS.get(name, name)) for name in _DATA}
    return {
        "id": f"evt_alert_{alert.pk}",
        "type": "quota.threshold_reached",
        "created_at": alert.created_at.isoformat(),
        "data": {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in data.items()
        },
    }


def response_event(public_id: str, status: str, now: datetime) -> dict[str, Any]:
    return {
        "id": f"evt_{secrets.token_hex(12)}",
        "object": "event",
        "type": f"response.{status}",
        "created_at": int(now.timestamp()),
        "data": {"id": public_id},
    }


def test_event() -> dict[str, Any]:
    return {
        "id": f"evt_test_{secrets.token_hex(8)}",
        "type": "webhook.test",
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "data": {},
    }


def send(webhook: Webhook, event: Mapping[str, Any]) -> None:
    """Send one event to a webhook. Raises `NotDelivered`."""
    body = json.dumps(event, separators=(",", ":")).encode()
    now_s = int(time.time())
    signatures = [sign(secret, str(event["id"]), now_s, body) for secret in _secrets(webhook)]
    headers = {
        "content-type": "application/json",
        "webhook-id": str(event["id"]),
        "webhook-timestamp": str(now_s),
        "webhook-signature": " ".join(signatures),
    }
    try:
        with lookups_of(("webhooks", webhook.organization_id)):
            status = asyncio.run(_post(check_url(webhook.url), headers, body))
    except (AddressRefused, ExchangeFailed) as error:
        raise NotDelivered(str(error)) from None
    except TimeoutError:
        raise NotDelivered(f"No answer within {TIMEOUT_S:g} s.") from None
    if not 200 <= status < 300:
        raise NotDelivered(f"The receiver answered {status}.")


def _secrets(webhook: Webhook) -> Iterator[str]:
    yield _decrypted(webhook.secret)
    until = webhook.previous_secret_until
    if until is not None and until > timezone.now():
        yield _decrypted(webhook.previous_secret)


def _decrypted(encrypted: str) -> str:
    from cryptography.fernet import InvalidToken

    try:
        return cipher(WEBHOOK_PURPOSE).decrypt(encrypted.encode()).decode()
    except InvalidToken:
        raise NotDelivered(
            "The secret cannot be decrypted: VINERY_SECRET_KEY has changed. Rotate the secret "
            "without a grace period, or create the webhook again."
        ) from None


async def _post(url: Url, headers: Mapping[str, str], body: bytes) -> int:
    """Send the request to a checked address and return the HTTP status. Raises `AddressRefused`,
    `ExchangeFailed`, and `TimeoutError` after `TIMEOUT_S` in all."""
    check = functools.partial(check_address, is_tls=url.is_tls)
    async with asyncio.timeout(TIMEOUT_S):
        route = await CLIENT.route(url, check)
        async with CLIENT.exchange(route, method="POST", headers=headers, body=body) as response:
            return response.status
