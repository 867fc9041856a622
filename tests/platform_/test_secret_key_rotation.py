"""Django's key is replaced without a gap: who is signed in stays so, and what was encrypted is
opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import stores
from tests.platform_ import scripts

OLD = "an old key of Django, long and random".replace(" ", "-") * 2
NEW = "a new key of Django, long and random".replace(" ", "-") * 2

_START = """
import sys
from vinery.cli.shape import start_django
start_django()
from django.conf import settings
from django.test import Client
client = Client(headers={"host": "localhost"})
"""
_SIGN_IN = (
    _START
    + """
from accounts.services import changes
from accounts.alerts import webhooks
from accounts.models import User
user = User.objects.create_user("alice", password="correct horse battery")
client.post("/accounts/login/", {"login": "alice", "password": "correct horse battery"})
changes.add(webhooks.make("pager", "https://hooks.example.com/")[0])
print(client.cookies[settings.SESSION_COOKIE_NAME].value)
"""
)
_COME_BACK = (
    _START
    + """
from accounts.alerts import webhooks
from accounts.models import Webhook
client.cookies[settings.SESSION_COOKIE_NAME] = sys.argv[1]
page = client.get("/accounts/")
print(page.wsgi_request.user.get_username() or "nobody")
print(client.cookies[settings.SESSION_COOKIE_NAME].value)
try:
    print(len([*webhooks._secrets(Webhook.objects.get())]), "secret")
except webhooks.NotDelivered:
    print("closed")
"""
)

Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    home = stores.environment_of(tmp_path / "home")

    def in_a_process(*words: str, **more: str) -> list[str]:
        told = scripts.run_python(*words, environment=home | more)
        assert told.returncode == 0, told.stderr
        return told.stdout.splitlines()

    in_a_process("-m", "vinery.cli", "prepare", VINERY_SECRET_KEY=OLD)
    return in_a_process


def test_who_is_signed_in_stays_so_and_what_was_encrypted_opens(run: Run) -> None:
    [cookie] = run("-c", _SIGN_IN, VINERY_SECRET_KEY=OLD)
    both = {"VINERY_SECRET_KEY": NEW, "VINERY_SECRET_KEY_FALLBACKS": OLD}

    assert run("-c", _COME_BACK, cookie, VINERY_SECRET_KEY=OLD) == ["alice", cookie, "1 secret"]
    assert run("-c", _COME_BACK, cookie, VINERY_SECRET_KEY=NEW) == ["nobody", "", "closed"]
    [name, moved, secrets] = run("-c", _COME_BACK, cookie, **both)
    assert (name, secrets) == ("alice", "1 secret")
    # Who came meanwhile has a cookie that is signed with the new key alone.
    assert run("-c", _COME_BACK, moved, VINERY_SECRET_KEY=NEW) == ["alice", moved, "closed"]

    [told] = run("-m", "vinery.cli", "admin", "reseal", **both)
    assert told.startswith("1 webhooks and second factors are encrypted")
    assert run("-c", _COME_BACK, moved, VINERY_SECRET_KEY=NEW) == ["alice", moved, "1 secret"]


def test_hosts_that_are_changed_one_after_the_other_know_both_keys_meanwhile(run: Run) -> None:
    changed = {"VINERY_SECRET_KEY": NEW, "VINERY_SECRET_KEY_FALLBACKS": OLD}
    not_yet = {"VINERY_SECRET_KEY": OLD, "VINERY_SECRET_KEY_FALLBACKS": NEW}
    [cookie] = run("-c", _SIGN_IN, **changed)

    for host in (not_yet, changed, not_yet):
        [name, cookie, secrets] = run("-c", _COME_BACK, cookie, **host)
        assert (name, secrets) == ("alice", "1 secret")
