"""Two organisations, people with every role, and clients that speak for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_client import Api, Tenant, make_tenant

from accounts.keys.lifecycle import NewKey, create_key
from accounts.models import Project, Role, User
from accounts.services import changes


@pytest.fixture
def ours(db: None) -> Tenant:
    return make_tenant("ours")


@pytest.fixture
def theirs(db: None) -> Tenant:
    return make_tenant("theirs")


@pytest.fixture
def person(ours: Tenant) -> Callable[..., User]:
    """Makes people with a role, in the whole of our organisation by default."""

    def make(name: str, role: str | None = None, scope: Any = None) -> User:
        user = User.objects.create_user(name)
        if role is not None:
            changes.set_role(user, scope or ours.organization, role)
        return user

    return make


@pytest.fixture
def as_user() -> Callable[[User], Api]:
    """A client with a session of this user."""

    def sign_in(user: User) -> Api:
        api = Api()
        api.client.force_login(user)
        return api

    return sign_in


@pytest.fixture
def as_role(person: Callable[..., User], as_user: Callable[[User], Api]) -> Callable[..., Api]:
    """A client of a user with this role."""
    return lambda role, scope=None: as_user(person(str(role), role, scope))


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
def key_in(person: Callable[..., User]) -> Callable[..., NewKey]:
    """Makes keys of a person of that project's."""
    known: dict[str, User] = {}

    def make(project: Project, name: str = "key", owner: User | None = None, **more: Any) -> NewKey:
        if owner is None:
            holder = f"holder of {project.pk}"
            owner = known.get(holder) or person(holder, Role.MEMBER, project)
            known[holder] = owner
        return create_key(owner=owner, project=project, name=name, **more)

    return make
