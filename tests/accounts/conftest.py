"""Users, keys, an OpenID Connect issuer, and usage ledgers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.accounts.api.api_client import Tenant, make_tenant
from tests.accounts.key_tables import past_clock
from tests.accounts.oidc_issuer import TestIssuer, running_issuer
from tests.accounts.signin_helpers import person
from tests.accounts.usage_builders import NewLedger, Shelf, die
from tests.accounts.webhook_receiver import Receiver, receiving
from tests.fakes.clock import FakeClock
from vinery_accounts.access import changes
from vinery_accounts.base.actors import Actor, acting_as
from vinery_accounts.keys.lifecycle import NewKey, create_key
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.models import AuditEntry, Organization, Project, Role, User
from vinery_accounts.outbound.addresses import read_networks

PEPPERS = {1: b"the first pepper", 2: b"the second pepper"}


@pytest.fixture(autouse=True)
def peppers(settings: Any) -> dict[int, bytes]:
    settings.VINERY_KEY_PEPPERS = PEPPERS
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return PEPPERS


@pytest.fixture
def alice(db: None) -> User:
    """A user with a password."""
    return person("alice")


@pytest.fixture
def bob(db: None) -> User:
    return User.objects.create_user("bob")


@pytest.fixture
def member(alice: User) -> User:
    """Return alice, who is a member of the first organisation."""
    changes.set_role(alice, changes.first_project().organization, Role.MEMBER)
    return alice


@pytest.fixture
def root(db: None, client: Client) -> User:
    """A superuser, who is signed in with the client."""
    root = User.objects.create_superuser("root")
    client.force_login(root)
    return root


@pytest.fixture
def staff(db: None, client: Client) -> User:
    """A staff user with all permissions and an admin's role in the first organisation, who is
    signed in with the client."""
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="accounts"))
    changes.set_role(staff, changes.first_project().organization, Role.ADMIN)
    client.force_login(staff)
    return staff


@pytest.fixture
def acme(db: None) -> Organization:
    return changes.add(Organization(name="Acme"))


@pytest.fixture
def search(acme: Organization) -> Project:
    return changes.add(Project(organization=acme, name="search"))


@pytest.fixture
def ours(db: None) -> Tenant:
    return make_tenant("ours")


@pytest.fixture
def theirs(db: None) -> Tenant:
    return make_tenant("theirs")


@pytest.fixture
def owner(ours: Tenant, alice: User) -> User:
    """Return alice, who is an owner of ours."""
    changes.set_role(alice, ours.organization, Role.OWNER)
    return alice


@pytest.fixture
def new_key(alice: User) -> Callable[..., NewKey]:
    """Return a function that creates a key. Alice owns it by default."""

    def make(name: str = "laptop", **changes: object) -> NewKey:
        return create_key(**{"owner": alice, "name": name, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture
def issuer(settings: Any) -> Iterator[TestIssuer]:
    """Run an issuer that knows Ada, with settings that create accounts."""
    with running_issuer() as issuer:
        issuer.claims = {
            "sub": "1234",
            "preferred_username": "ada",
            "name": "Ada Lovelace",
            "email": "ada@example.com",
            "email_verified": True,
        }
        issuer.django_settings = settings
        issuer.allow(makes_accounts=True)
        yield issuer


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """Run a receiver of webhooks."""
    settings.VINERY_WEBHOOK_NETWORKS = read_networks(["127.0.0.0/8"])
    with receiving() as started:
        yield started


@pytest.fixture
def clock() -> FakeClock:
    return past_clock()


@pytest.fixture
def table(clock: FakeClock) -> KeyTable:
    return KeyTable(clock=clock)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def new_ledger(tmp_path: Path) -> Iterator[NewLedger]:
    make = NewLedger(tmp_path)
    yield make
    for ledger in make.made:
        die(ledger)


@pytest.fixture
def chain(db: None) -> list[AuditEntry]:
    """Return five entries of the audit log."""
    with acting_as(Actor(1, "root", "192.0.2.1")):
        organization = changes.add(Organization(name="acme"))
        for number in range(4):
            changes.change(organization, name=f"acme {number}")
    return list(AuditEntry.objects.order_by("number"))
