"""Django's secret key is replaced while sessions continue and secrets stay readable."""

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from vinery.cli import main
from vinery_accounts.alerts import webhooks
from vinery_accounts.models import User, Webhook
from vinery_accounts.services import changes

pytestmark = pytest.mark.django_db

OLD = "an old key of Django, long and random".replace(" ", "-") * 2
NEW = "a new key of Django, long and random".replace(" ", "-") * 2

UseKeys = Callable[..., None]


@pytest.fixture
def use_keys(settings: Any) -> UseKeys:
    """Set Django's keys as VINERY_SECRET_KEY and VINERY_SECRET_KEY_FALLBACKS do."""

    def use(newest: str, *older: str) -> None:
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = newest, list(older)

    return use


def sign_in() -> str:
    """Store a user and a webhook, and return the cookie of a new session."""
    User.objects.create_user("alice", password="correct horse battery")
    changes.add(webhooks.make("pager", "https://hooks.example.com/")[0])
    client = Client(headers={"host": "localhost"})
    client.post("/accounts/login/", {"login": "alice", "password": "correct horse battery"})
    return client.cookies[django_settings.SESSION_COOKIE_NAME].value


def come_back(cookie: str) -> tuple[str, str, int]:
    """Return the user of the session, the new cookie, and how many webhook secrets are readable."""
    client = Client(headers={"host": "localhost"})
    client.cookies[django_settings.SESSION_COOKIE_NAME] = cookie
    page: Any = client.get("/accounts/")
    username = page.wsgi_request.user.get_username()
    try:
        num_secrets = len([*webhooks._secrets(Webhook.objects.get())])
    except webhooks.NotDelivered:
        num_secrets = 0
    return username, client.cookies[django_settings.SESSION_COOKIE_NAME].value, num_secrets


def test_sessions_continue_and_secrets_stay_readable(
    use_keys: UseKeys, capsys: pytest.CaptureFixture[str]
) -> None:
    use_keys(OLD)
    cookie = sign_in()

    assert come_back(cookie) == ("alice", cookie, 1)
    use_keys(NEW)
    assert come_back(cookie) == ("", "", 0)
    # Hosts with both keys in any order accept each other's sessions.
    new_cookie = cookie
    for keys in ((NEW, OLD), (OLD, NEW), (NEW, OLD)):
        use_keys(*keys)
        username, new_cookie, num_secrets = come_back(new_cookie)
        assert (username, num_secrets) == ("alice", 1)
    # The new cookie is signed only with the new key.
    use_keys(NEW)
    assert come_back(new_cookie) == ("alice", new_cookie, 0)

    use_keys(NEW, OLD)
    assert main(["admin", "reencrypt"]) == 0
    assert capsys.readouterr().out.startswith("1 webhooks and second factors are encrypted")
    use_keys(NEW)
    assert come_back(new_cookie) == ("alice", new_cookie, 1)
