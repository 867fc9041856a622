"""A client of the management API, and organisations for its tests."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import NewKey, create_key
from vinery_accounts.models import Organization, Project, Role, User


@dataclass
class Api:
    """A client of the management API. It sends a session cookie or the given headers."""

    client: Client = field(default_factory=Client)
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Send a request. A body that is not a str is encoded as JSON. Any status is accepted."""
        arguments: dict[str, Any] = {"headers": self.headers, "query_params": query or None}
        if body is not None:
            data = body if isinstance(body, str) else json.dumps(body)
            arguments |= {"data": data, "content_type": "application/json"}
        return self.client.generic(method, f"/api/{path}", **arguments)

    def get(self, path: str, **query: object) -> Any:
        """Return the parsed body. The status must be 200."""
        return _body(self.request("GET", path, **query), 200)

    def column(self, path: str, field_name: str = "name", /, **query: object) -> list[Any]:
        """Return the values of one field of a list, in its order."""
        return [row[field_name] for row in self.get(path, **query)["data"]]

    def post(self, path: str, body: object = None, status: int = 201) -> Any:
        """Return the parsed body. The response must have the status."""
        return _body(self.request("POST", path, body), status)

    def patch(self, path: str, body: object, status: int = 200) -> Any:
        """Return the parsed body. The response must have the status."""
        return _body(self.request("PATCH", path, body), status)

    def delete(self, path: str, status: int = 204) -> Any:
        """Return the parsed body, None if it is empty. The response must have the status."""
        return _body(self.request("DELETE", path), status)

    def error(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Send a request that fails. Returns the status and the error's code and parameter."""
        response = self.request(method, path, body, **query)
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return response.status_code, error["code"], error["param"]


def _body(response: Any, status: int) -> Any:
    assert response.status_code == status, response.content
    return response.json() if response.content else None


@dataclass
class Tenant:
    """An organisation with two projects, to which users and keys are added."""

    organization: Organization
    one: Project
    two: Project

    def user(self, name: str, role: str | None = None, scope: Any = None) -> User:
        """Create a user. The scope of the role is the organisation by default."""
        user = User.objects.create_user(name)
        if role is not None:
            changes.set_role(user, scope or self.organization, role)
        return user

    def as_role(self, role: str, scope: Any = None) -> Api:
        """Create a user with the role. Returns a client with the user's session."""
        return as_user(self.user(str(role), role, scope))

    def key(
        self, project: Project, name: str = "key", owner: User | None = None, **values: Any
    ) -> NewKey:
        """Create a key. By default the owner is a member of the project, one for each project."""
        holder = f"holder of {project.pk}"
        owner = owner or User.objects.filter(username=holder).first()
        owner = owner or self.user(holder, Role.MEMBER, project)
        return create_key(owner=owner, project=project, name=name, **values)

    def with_key(self, project: Project, **values: Any) -> Api:
        """Return a client that sends such a key."""
        return with_key(self.key(project, **values))


def make_tenant(name: str) -> Tenant:
    """Store an organisation and its projects "NAME one" and "NAME two"."""
    organization = changes.add(Organization(name=name))
    one, two = (
        changes.add(Project(organization=organization, name=f"{name} {number}"))
        for number in ("one", "two")
    )
    return Tenant(organization, one, two)


def with_key(new: NewKey) -> Api:
    return Api(headers={"Authorization": f"Bearer {new.secret}"})


def as_user(user: User) -> Api:
    """Return a client with a session of the user."""
    api = Api()
    api.client.force_login(user)
    return api


Keys = Callable[..., NewKey]
