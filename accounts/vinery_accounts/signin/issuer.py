"""The settings of the OpenID Connect issuer. Django's settings import this: it has no Django."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# The provider's name in URLs and rows: there is one issuer.
PROVIDER_ID = "oidc"


@dataclass(frozen=True)
class Issuer:
    """An OpenID Connect issuer through which users may sign in."""

    url: str  # exactly as in `issuer` of its discovery document
    client_id: str
    client_secret: str = field(repr=False)
    name: str = "single sign-on"
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    makes_accounts: bool = False
    """Every user of the issuer gets an account; otherwise only connected and linked ones do."""
    links_by_email: bool = False
    """A verified address gives access to the account with this address. Only for an issuer that
    really verifies addresses."""
    organization: str = ""  # the organisation of its users; empty: the one of the first project
    groups_claim: str = ""  # the claim that lists a user's groups; empty: groups are ignored
    admin_group: str = ""
    """Members of this group are superusers, and no other users of the issuer are."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """A role in the organisation for each group. Users in none of these groups have no role."""
