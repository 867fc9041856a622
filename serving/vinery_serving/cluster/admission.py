"""Makes tokens for hosts that join, and gives each of them the secrets of the installation once.

The cache in the database has the digests of tokens that were not used: all hosts share it, and
forget a token when its time has ended.
"""

import time
from collections.abc import Mapping

from django.conf import settings
from django.core.cache import cache
from django.db import connection

from vinery_accounts.access import audit
from vinery_accounts.base.actors import Actor
from vinery_serving.cluster import joining
from vinery_serving.cluster.authority import host_fingerprint
from vinery_serving.cluster.joining import Admission, Refused
from vinery_serving.models.host_rows import Host
from vinery_serving.transport.relayed import Join


def make_token() -> str:
    """Raises `Refused`."""
    if connection.vendor != "postgresql":
        raise Refused("Several hosts need PostgreSQL: set DATABASE_URL on this host first.")
    if not settings.VINERY_HOST_ADDRESS or not settings.VINERY_HOST_KEY:
        raise Refused("Set VINERY_HOST_ADDRESS, where the new host connects, and restart.")
    own = host_fingerprint(settings.VINERY_HOST_KEY)
    token = joining.new_token(settings.VINERY_AUTHORITY_SECRETS[0], own, time.time())
    audit.record("make_token", Host(name=settings.VINERY_HOST_NAME))
    cache.set(_name(token), True, joining.VALID_S)
    return token


def admit(wish: Join, given: Mapping[str, str]) -> Admission:
    """Answer a host. `given`: the settings that it needs."""
    is_genuine = joining.is_genuine(wish.token, settings.VINERY_AUTHORITY_SECRETS, time.time())
    if not is_genuine or not cache.delete(_name(wish.token)):
        return joining.NO_SUCH_TOKEN
    own = {"name": wish.name, "fingerprint": wish.fingerprint}
    audit.record("join", Host(**own), after=own, by=Actor(None, "a token of a host"))
    texts = {
        "django_secret_key": settings.SECRET_KEY,
        "django_secret_key_fallbacks": " ".join(settings.SECRET_KEY_FALLBACKS),
    }
    peppers = settings.VINERY_KEY_PEPPERS.items()
    texts |= {f"key_pepper_{number}": pepper.decode() for number, pepper in peppers}
    return Admission(
        secrets={name: text for name, text in texts.items() if text},
        settings={key: text for key, text in given.items() if text},
    )


def _name(token: str) -> str:
    return f"host-token:{joining.digest_of(token)}"
