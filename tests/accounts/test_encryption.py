"""Secrets in the database are encrypted with Django's key, and each purpose has its own key. After
reencryption, the newest key is enough to read them."""

from datetime import timedelta
from typing import Any

import pytest
import signin_helpers as signin
from allauth.mfa.models import Authenticator
from cryptography.fernet import InvalidToken

from vinery_accounts.access import changes
from vinery_accounts.alerts import webhooks
from vinery_accounts.base.encryption import cipher
from vinery_accounts.models import Webhook
from vinery_accounts.reencryption import Reencrypted, reencrypt
from vinery_platform.cli import main
from vinery_serving.models import job_requests
from vinery_serving.models.job_rows import JobKind, SecretLost, secret_of
from vinery_serving.models.models import ServedModel

OLD, NEW = "an old key of Django, quite long and random", "a new key of Django, long and random"


@pytest.fixture
def keys(settings: Any) -> Any:
    """Set Django's keys, the newest first."""

    def these(newest: str, *older: str) -> None:
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = newest, list(older)

    these(OLD)
    return these


def test_a_text_is_decrypted_with_the_key_of_its_purpose_while_that_is_known(keys: Any) -> None:
    encrypted = cipher(b"one").encrypt(b"secret")
    assert b"secret" not in encrypted
    with pytest.raises(InvalidToken):
        cipher(b"another").decrypt(encrypted)

    for known in ((OLD,), (NEW, OLD)):
        keys(*known)
        assert cipher(b"one").decrypt(encrypted) == b"secret"
    keys(NEW)
    with pytest.raises(InvalidToken):
        cipher(b"one").decrypt(encrypted)


@pytest.mark.django_db
def test_second_factors_and_webhooks_are_reencrypted(client: Any, keys: Any) -> None:
    alice = signin.person("alice")
    secret = signin.give_factor(alice)
    codes = signin.recovery_codes(alice)
    webhook, first = webhooks.make("pager", "https://hooks.example.com/")
    changes.add(webhook)
    second = webhooks.rotate(webhook, timedelta(days=1))
    stored = str([*Authenticator.objects.values(), *Webhook.objects.values()])
    assert not [each for each in (secret, *codes, first, second) if each in stored]

    keys(NEW, OLD)
    assert signin.recovery_codes(alice) == codes
    assert reencrypt() == Reencrypted(3, 0)
    keys(NEW)

    assert list(webhooks._secrets(Webhook.objects.get())) == [second, first]
    assert signin.recovery_codes(alice) == codes
    signin.sign_in(client, "alice")
    signin.enter_code(client, signin.code_of(secret))
    assert signin.signed_in_name(client) == "alice"
    assert reencrypt() == Reencrypted(3, 0)


@pytest.mark.django_db
def test_secrets_of_jobs_are_reencrypted(keys: Any) -> None:
    model = ServedModel.objects.create(name="m", folder="/m")
    job = job_requests.begin(model, JobKind.PULL, {"kind": "archive"}, "?signature")
    job_requests.begin(model, JobKind.BENCH, {"model_id": 1})

    keys(NEW, OLD)
    assert reencrypt() == Reencrypted(1, 0)
    keys(NEW)

    job.refresh_from_db()
    assert secret_of(job) == "?signature"
    keys(OLD)
    with pytest.raises(SecretLost, match="Pull the whole URL again"):
        secret_of(job)


@pytest.mark.django_db
@pytest.mark.parametrize("command", ["reencrypt", "reseal"])
def test_an_undecryptable_secret_is_reported_and_does_not_block_others(
    keys: Any, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes.add(webhooks.make("lost", "https://hooks.example.com/")[0])
    keys(NEW)
    webhook, secret = webhooks.make("pager", "https://hooks.example.com/")
    changes.add(webhook)

    assert main(["admin", command]) == 1

    printed = capsys.readouterr()
    assert printed.out.startswith("1 secrets of webhooks, second factors and jobs")
    assert printed.err.startswith("vinery: 1 more are encrypted with a key that is not configured.")
    assert list(webhooks._secrets(Webhook.objects.get(name="pager"))) == [secret]
