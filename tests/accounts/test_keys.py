"""The format, creation and revocation of API keys."""

import string
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from tests.accounts.api.api_client import Keys
from tests.tables import table
from vinery_accounts.keys.lifecycle import revoke_key
from vinery_accounts.keys.secrets import digest_of, hint_of, looks_like_key, new_secret
from vinery_accounts.models import ApiKey, KeyState, User

BASE62 = string.digits + string.ascii_letters
ENVS = st.text(string.ascii_lowercase, min_size=2, max_size=8)


def test_keys_differ_in_a_stable_format_of_one_length() -> None:
    # Keys stay valid over releases. A change of the check characters would invalidate all keys.
    assert looks_like_key("vny_live_0123456789ABCDEFGHIJKLMNOPQRSTUV4MRp1F")
    assert len({new_secret() for _ in range(100)}) == 100
    assert hint_of("vny_live_aB3d" + "z" * 32 + "x9") == "vny_live_aB3d…x9"

    secret = new_secret()

    assert not any(map(looks_like_key, (secret[:-1], f"{secret}0", f"{secret}\n")))
    assert looks_like_key(secret)
    assert looks_like_key(secret.encode())


@given(ENVS)
def test_every_new_key_has_the_format_of_a_key_and_its_hint_fits_its_column(env: str) -> None:
    assert looks_like_key(new_secret(env))

    assert len(hint_of(new_secret(env))) <= 24


@given(ENVS, st.data())
def test_a_key_with_one_wrong_character_is_invalid(env: str, data: st.DataObject) -> None:
    secret = new_secret(env)
    at = data.draw(st.integers(secret.index("_", 4) + 1, len(secret) - 1))
    wrong = data.draw(st.sampled_from(BASE62).filter(lambda c: c != secret[at]))

    assert not looks_like_key(secret[:at] + wrong + secret[at + 1 :])


@table("env", ["x", "ninechars", "Live", "l1ve", ""])
def test_a_key_with_an_unknown_environment_is_invalid(env: str) -> None:
    assert not looks_like_key(new_secret(env))


def test_only_the_digest_of_a_pepper_is_stored_which_a_key_needs(
    new_key: Keys, peppers: dict[int, bytes], settings: Any
) -> None:
    created = new_key()

    row = ApiKey.objects.filter(pk=created.key.pk).values().get()
    assert row["pepper_id"] == 2
    assert row["digest"] == digest_of(created.secret.encode(), peppers[2]).hex()
    random_part = created.secret.removeprefix("vny_live_")
    assert not any(random_part[4:-2] in str(value) for value in row.values())

    settings.VINERY_KEY_PEPPERS = {}

    with pytest.raises(ImproperlyConfigured, match="VINERY_KEY_PEPPERS"):
        new_key()
    assert ApiKey.objects.count() == 1


def test_a_key_has_the_reason_and_time_of_its_refusal(new_key: Keys, alice: User) -> None:
    key = new_key().key

    revoke_key(key)
    first = key.revoked_at
    revoke_key(key)

    assert first is not None
    assert key.revoked_at == first

    now = timezone.now()
    key = new_key(expires_at=now).key
    assert key.state_at(now - timedelta(seconds=1)) is KeyState.ACTIVE
    assert key.state_at(now) is KeyState.EXPIRED
    key.revoked_at = now
    assert key.state_at(now) is KeyState.REVOKED
    other = new_key().key
    alice.is_active = False
    assert other.state_at(now) is KeyState.OWNER_INACTIVE
