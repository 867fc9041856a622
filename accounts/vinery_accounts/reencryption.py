"""Reencryption of stored secrets with Django's newest key, so that older keys can be removed.

Sessions are not reencrypted: they expire within two weeks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from allauth.mfa.models import Authenticator
from cryptography.fernet import InvalidToken
from django.apps import apps
from django.db import transaction

from vinery_accounts.access import audit
from vinery_accounts.base.encryption import reencrypted
from vinery_accounts.signin import factors
from vinery_accounts.stored import care


@dataclass(frozen=True, slots=True)
class Reencrypted:
    num_done: int
    num_unreadable: int


def reencrypt() -> Reencrypted:
    """Rows of models with `ENCRYPTED`, a mapping of columns to purposes, second factors, and what
    the server remembers for clients."""
    done = []
    for model in apps.get_models():
        if columns := getattr(model, "ENCRYPTED", None):
            rows = model._default_manager.exclude(**dict.fromkeys(columns, ""))
            reencrypt_row = partial(_reencrypt_row, model)
            done += [_is_done(reencrypt_row, pk) for pk in rows.values_list("pk", flat=True)]
    authenticators = Authenticator.objects.values_list("pk", flat=True)
    done += [_is_done(_reencrypt_factor, pk) for pk in authenticators]
    num_texts, num_lost = care.reencrypt()
    return Reencrypted(num_texts + done.count(True), num_lost + done.count(False))


def _is_done(reencrypt_row: Callable[[int], None], pk: int) -> bool:
    try:
        reencrypt_row(pk)
    except InvalidToken:
        return False
    return True


def _reencrypt_row(model: Any, pk: int) -> None:
    """Raises `cryptography.fernet.InvalidToken`."""
    with audit.writing():
        for row in model.objects.select_for_update().filter(pk=pk):
            for column, purpose in model.ENCRYPTED.items():
                if text := getattr(row, column):
                    setattr(row, column, reencrypted(purpose, text))
            row.save(update_fields=list(model.ENCRYPTED))


def _reencrypt_factor(pk: int) -> None:
    """Raises `cryptography.fernet.InvalidToken`."""
    with transaction.atomic():
        for row in Authenticator.objects.select_for_update().filter(pk=pk):
            row.data = factors.reencrypted(row.data)
            row.save(update_fields=["data"])
