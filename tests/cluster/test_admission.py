"""The secrets of an installation are given once for each token, and the log says so."""

import pytest
from django.conf import settings
from django.core.cache import cache

from tests.cluster.hosts import NODE_HOST, WEB_HOST
from vinery_accounts.models import AuditEntry
from vinery_serving.cluster import admission, joining
from vinery_serving.cluster.authority import host_fingerprint
from vinery_serving.cluster.joining import Refused
from vinery_serving.transport.relayed import Join

OWN, OTHER = host_fingerprint(NODE_HOST), host_fingerprint(WEB_HOST)


@pytest.mark.django_db
def test_a_token_gives_the_secrets_once() -> None:
    made = new_token()
    wish = Join(made, "moon", OTHER)

    first = admission.admit(wish, {"database_url": "postgres://db/vinery", "redis_url": ""})

    assert first.error == ""
    assert first.settings == {"database_url": "postgres://db/vinery"}
    assert first.secrets["django_secret_key"] == settings.SECRET_KEY
    assert first.secrets["key_pepper_1"].encode() == settings.VINERY_KEY_PEPPERS[1]
    assert admission.admit(wish, {}) == joining.NO_SUCH_TOKEN
    entry = AuditEntry.objects.get(action="host.join")
    assert entry.after["fingerprint"] == OTHER
    assert made not in str(vars(entry))
    assert joining.digest_of(made) not in str(vars(entry))


@pytest.mark.django_db
def test_a_token_of_another_time_gives_nothing() -> None:
    late = joining.new_token(settings.VINERY_AUTHORITY_SECRETS[0], OWN, 0)
    cache.set(admission._name(late), True)
    assert admission.admit(Join(late, "moon", OTHER), {}) == joining.NO_SUCH_TOKEN


@pytest.mark.django_db
def test_a_database_of_one_host_gives_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.db.connection.vendor", "sqlite")
    with pytest.raises(Refused, match="PostgreSQL"):
        admission.make_token()


def new_token() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.db.connection.vendor", "postgresql")
        patch.setattr(settings, "VINERY_HOST_ADDRESS", "127.0.0.1:7000")
        patch.setattr(settings, "VINERY_HOST_KEY", NODE_HOST)
        patch.setattr("vinery_accounts.access.audit.record", lambda *_: None)
        return admission.make_token()
