"""Reencryption of stored secrets with Django's newest key, so that older keys can be removed.

Sessions are not reencrypted: they expire within two weeks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from allauth.mfa.models import Authenticator
from cryptography.fernet import InvalidToken
from django.db import transaction

from vinery_accounts.access import audit
from vinery_accounts.alerts import webhooks
from vinery_accounts.base.encryption import reencrypted
from vinery_accounts.models import Webhook
from vinery_accounts.signin import factors


@dataclass(frozen=True, slots=True)
class Reencrypted:
    """How many rows were reencrypted, and how many no configured key can decrypt."""

    num_done: int
    num_unreadable: int


def reencrypt() -> Reencrypted:
    hooks = Webhook.objects.values_list("pk", flat=True)
    authenticators = Authenticator.objects.values_list("pk", flat=True)
    done = [_is_done(_reencrypt_webhook, pk) for pk in hooks]
    done += [_is_done(_reencrypt_factor, pk) for pk in authenticators]
    return Reencrypted(done.count(True), done.count(False))


def _is_done(reencrypt_row: Callable[[int], None], pk: int) -> bool:
    try:
        reencrypt_row(pk)
    except InvalidToken:
        return False
    return True


def _reencrypt_webhook(pk: int) -> None:
    """Raises `cryptography.fernet.InvalidToken`."""
    with audit.writing():
        for webhook in Webhook.objects.select_for_update().filter(pk=pk):
            webhook.secret = reencrypted(webhooks.PURPOSE, webhook.secret)
            if webhook.previous_secret:
                webhook.previous_secret = reencrypted(webhooks.PURPOSE, webhook.previous_secret)
            webhook.save(update_fields=["secret", "previous_secret"])


def _reencrypt_factor(pk: int) -> None:
    """Raises `cryptography.fernet.InvalidToken`."""
    with transaction.atomic():
        for row in Authenticator.objects.select_for_update().filter(pk=pk):
            row.data = factors.reencrypted(row.data)
            row.save(update_fields=["data"])
