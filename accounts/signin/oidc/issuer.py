"""What the settings say of the issuer. Imported by them, so it needs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The provider's name in URLs and rows: there is one issuer.
PROVIDER_ID = "oidc"


@dataclass(frozen=True)
class Issuer:
    """An OpenID Connect issuer that people may come through."""

    url: str
    """As in its discovery document's `issuer`, character for character."""
    client_id: str
    client_secret: str = field(repr=False)
    name: str = "single sign-on"
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    makes_accounts: bool = False
    """Whoever it knows gets an account; else only those who are connected or linked."""
    links_by_email: bool = False
    """An address that it calls verified opens the account that has this address. Only for an
    issuer that nobody can tell another person's address to."""
    organization: str = ""
    """Where its people belong; empty: that of a new installation."""
    groups_claim: str = ""
    """The claim that lists a person's groups; empty: groups mean nothing."""
    admin_group: str = ""
    """Who is in it is a superuser, and nobody else who comes through the issuer."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """A role in the organisation for each group. Who is in none of them has no role."""
