"""What lies encrypted in the database for long, encrypted anew with the newest of Django's keys, so
that older ones can be taken away.

Sessions need none of it: they are over in two weeks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from allauth.mfa.models import Authenticator
from django.db import transaction

from accounts.alerts import webhooks
from accounts.models import Webhook
from accounts.services import audit
from accounts.signin import factors


@dataclass(frozen=True, slots=True)
class Resealed:
    """How many rows were encrypted anew, and how many no key that is named here opens."""

    num_done: int
    num_closed: int


def reseal() -> Resealed:
    """Webhooks' secrets and second factors. It may be done at any time, and again."""
    hooks = [_done(_reseal_webhook, pk) for pk in Webhook.objects.values_list("pk", flat=True)]
    rows = Authenticator.objects.values_list("pk", flat=True)
    done = [*hooks, *(_done(_reseal_factor, pk) for pk in rows)]
    return Resealed(done.count(True), done.count(False))


def _done(reseal_row: Callable[[int], None], pk: int) -> bool:
    from cryptography.fernet import InvalidToken

    try:
        reseal_row(pk)
    except InvalidToken:
        return False
    return True


def _reseal_webhook(pk: int) -> None:
    """Raises `cryptography.fernet.InvalidToken`."""
    with audit.writing():
        for webhook in Webhook.objects.select_for_update().filter(pk=pk):
            webhook.secret = webhooks.resealed(webhook.secret)
            if webhook.previous_secret:
                webhook.previous_secret = webhooks.resealed(webhook.previous_secret)
            webhook.save(update_fields=["secret", "previous_secret"])


def _reseal_factor(pk: int) -> None:
    """Raises `cryptography.fernet.InvalidToken`."""
    with transaction.atomic():
        for row in Authenticator.objects.select_for_update().filter(pk=pk):
            row.data = factors.resealed(row.data)
            row.save(update_fields=["data"])
