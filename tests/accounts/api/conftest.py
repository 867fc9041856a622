"""Clients that act as users with each role."""

import pytest
from api_client import Api, Tenant, as_user

from vinery_accounts.models import Role, User


@pytest.fixture
def owner(ours: Tenant) -> Api:
    return ours.as_role(Role.OWNER)


@pytest.fixture
def admin(ours: Tenant) -> Api:
    return ours.as_role(Role.ADMIN)


@pytest.fixture
def member(ours: Tenant) -> Api:
    return ours.as_role(Role.MEMBER)


@pytest.fixture
def viewer(ours: Tenant) -> Api:
    return ours.as_role(Role.VIEWER)


@pytest.fixture
def root(db: None) -> Api:
    return as_user(User.objects.create_superuser("root"))
