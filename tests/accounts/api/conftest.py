"""Two organisations, users with each role, and clients that act as them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_client import Api, Tenant, make_tenant

from vinery_accounts.keys.lifecycle import NewKey, create_key
from vinery_accounts.models import Project, Role, User
from vinery_accounts.services import changes


@pytest.fixture
def ours(db: None) -> Tenant:
    return make_tenant("ours")


@pytest.fixture
def theirs(db: None) -> Tenant:
    return make_tenant("theirs")


@pytest.fixture
def make_user(ours: Tenant) -> Callable[..., User]:
    """Create a user. The scope of the role is the organisation `ours` by default."""

    def make(name: str, role: str | None = None, scope: Any = None) -> User:
        user = User.objects.create_user(name)
        if role is not None:
            changes.set_role(user, scope or ours.organization, role)
        return user

    return make


@pytest.fixture
def as_user() -> Callable[[User], Api]:
    """Return a client with a session of the user."""

    def sign_in(user: User) -> Api:
        api = Api()
        api.client.force_login(user)
        return api

    return sign_in


@pytest.fixture
def as_role(make_user: Callable[..., User], as_user: Callable[[User], Api]) -> Callable[..., Api]:
    """Create a user with the role. Returns a client with their session."""
    return lambda role, scope=None: as_user(make_user(str(role), role, scope))


@pytest.fixture
def owner(as_role: Callable[..., Api]) -> Api:
    return as_role(Role.OWNER)


@pytest.fixture
def admin(as_role: Callable[..., Api]) -> Api:
    return as_role(Role.ADMIN)


@pytest.fixture
def member(as_role: Callable[..., Api]) -> Api:
    return as_role(Role.MEMBER)


@pytest.fixture
def viewer(as_role: Callable[..., Api]) -> Api:
    return as_role(Role.VIEWER)


@pytest.fixture
def root(db: None, as_user: Callable[[User], Api]) -> Api:
    return as_user(User.objects.create_superuser("root"))


@pytest.fixture
def make_key(make_user: Callable[..., User]) -> Callable[..., NewKey]:
    """Create a key. Its owner is a member of the project by default, one for each project."""
    members: dict[int, User] = {}

    def make(
        project: Project, name: str = "key", owner: User | None = None, **values: Any
    ) -> NewKey:
        if owner is None:
            name_of_owner = f"holder of {project.pk}"
            owner = members.get(project.pk) or make_user(name_of_owner, Role.MEMBER, project)
            members[project.pk] = owner
        return create_key(owner=owner, project=project, name=name, **values)

    return make
