"""The format, creation and revocation of API keys."""

from __future__ import annotations

import string
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from vinery_accounts.keys.lifecycle import NewKey, revoke_key
from vinery_accounts.keys.secrets import digest_of, hint_of, looks_like_key, new_secret
from vinery_accounts.models import ApiKey, KeyState, User

BASE62 = string.digits + string.ascii_letters
ENVS = st.text(string.ascii_lowercase, min_size=2, max_size=8)


def test_the_check_characters_of_a_known_key_do_not_change() -> None:
    # Keys stay valid over releases. A change of the check characters would invalidate all keys.
    assert looks_like_key("vny_live_0123456789ABCDEFGHIJKLMNOPQRSTUV4MRp1F")


@given(ENVS)
def test_every_new_key_has_the_format_of_a_key(env: str) -> None:
    assert looks_like_key(new_secret(env))


@given(ENVS, st.data())
def test_a_key_with_one_wrong_character_is_invalid(env: str, data: st.DataObject) -> None:
    secret = new_secret(env)
    at = data.draw(st.integers(secret.index("_", 4) + 1, len(secret) - 1))
    wrong = data.draw(st.sampled_from(BASE62).filter(lambda c: c != secret[at]))

    assert not looks_like_key(secret[:at] + wrong + secret[at + 1 :])


@given(ENVS, st.data())
def test_a_key_with_two_swapped_characters_is_invalid(env: str, data: st.DataObject) -> None:
    secret = new_secret(env)
    at = data.draw(st.integers(secret.index("_", 4) + 1, len(secret) - 2))
    swapped = secret[:at] + secret[at + 1] + secret[at] + secret[at + 2 :]

    assert looks_like_key(swapped) == (swapped == secret)


@given(st.text() | st.binary())
def test_any_other_text_is_invalid(text: str | bytes) -> None:
    assert not looks_like_key(text)


@pytest.mark.parametrize("change", [lambda k: k[:-1], lambda k: k + "0", lambda k: k + "\n"])
def test_a_key_of_another_length_is_invalid(change: Callable[[str], str]) -> None:
    assert not looks_like_key(change(new_secret()))


@pytest.mark.parametrize("env", ["x", "ninechars", "Live", "l1ve", ""])
def test_a_key_with_an_unknown_environment_is_invalid(env: str) -> None:
    assert not looks_like_key(new_secret(env))


def test_text_and_bytes_have_the_same_digest() -> None:
    secret = new_secret()

    assert looks_like_key(secret.encode())
    assert looks_like_key(secret)


def test_new_keys_differ() -> None:
    assert len({new_secret() for _ in range(100)}) == 100


def test_the_hint_shows_only_both_ends() -> None:
    assert hint_of("vny_live_aB3d" + "z" * 32 + "x9") == "vny_live_aB3d…x9"


@given(ENVS)
def test_the_hint_fits_its_column(env: str) -> None:
    assert len(hint_of(new_secret(env))) <= 24


def test_only_a_digest_under_the_newest_pepper_is_stored(
    new_key: Callable[..., NewKey], peppers: dict[int, bytes]
) -> None:
    created = new_key()

    row = ApiKey.objects.filter(pk=created.key.pk).values().get()
    assert row["pepper_id"] == 2
    assert row["digest"] == digest_of(created.secret.encode(), peppers[2]).hex()
    random_part = created.secret.removeprefix("vny_live_")
    assert not any(random_part[4:-2] in str(value) for value in row.values())


def test_a_key_needs_a_pepper(new_key: Callable[..., NewKey], settings: Any) -> None:
    settings.VINERY_KEY_PEPPERS = {}

    with pytest.raises(ImproperlyConfigured, match="VINERY_KEY_PEPPERS"):
        new_key()
    assert not ApiKey.objects.exists()


def test_revoking_twice_keeps_the_first_time(new_key: Callable[..., NewKey]) -> None:
    key = new_key().key

    revoke_key(key)
    first = key.revoked_at
    revoke_key(key)

    assert first is not None
    assert key.revoked_at == first


def test_a_key_has_the_reason_of_its_refusal(new_key: Callable[..., NewKey], alice: User) -> None:
    now = timezone.now()
    key = new_key(expires_at=now).key

    assert key.state_at(now - timedelta(seconds=1)) is KeyState.ACTIVE
    assert key.state_at(now) is KeyState.EXPIRED
    key.revoked_at = now
    assert key.state_at(now) is KeyState.REVOKED


def test_a_key_of_an_inactive_owner_is_refused_for_that_reason(
    new_key: Callable[..., NewKey], alice: User
) -> None:
    key = new_key().key
    alice.is_active = False

    assert key.state_at(timezone.now()) is KeyState.OWNER_INACTIVE
