"""Clients of the management API, and organisations for them to manage."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from accounts.keys.lifecycle import NewKey
from accounts.models import Organization, Project
from accounts.services import changes


@dataclass
class Api:
    """A client of the management API."""

    client: Client = field(default_factory=Client)
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """A response, whatever its status."""
        more: dict[str, Any] = {"headers": self.headers, "query_params": query or None}
        if body is not None:
            more |= {"data": body, "content_type": "application/json"}
        return self.client.generic(method, f"/api/{path}", **_encoded(more))

    def get(self, path: str, **query: object) -> Any:
        """The body of a 200."""
        return _body(self.ask("GET", path, **query), 200)

    def names(self, path: str, column: str = "name", /, **query: object) -> list[Any]:
        """One column of a list."""
        return [row[column] for row in self.get(path, **query)["data"]]

    def post(self, path: str, body: object = None, status: int = 201) -> Any:
        """The body of what was made."""
        return _body(self.ask("POST", path, body), status)

    def patch(self, path: str, body: object, status: int = 200) -> Any:
        """The body of what was changed."""
        return _body(self.ask("PATCH", path, body), status)

    def delete(self, path: str, status: int = 204) -> Any:
        """Nothing, or the error."""
        return _body(self.ask("DELETE", path), status)

    def refusal(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """The status, the code and the parameter of an error."""
        response = self.ask(method, path, body, **query)
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return response.status_code, error["code"], error["param"]


def _encoded(more: dict[str, Any]) -> dict[str, Any]:
    if "data" in more and not isinstance(more["data"], str):
        more["data"] = json.dumps(more["data"])
    return more


def _body(response: Any, status: int) -> Any:
    assert response.status_code == status, response.content
    return response.json() if response.content else None


@dataclass
class Tenant:
    """An organisation with two projects."""

    organization: Organization
    one: Project
    two: Project


def make_tenant(name: str) -> Tenant:
    organization = changes.add(Organization(name=name))
    one, two = (
        changes.add(Project(organization=organization, name=f"{name} {number}"))
        for number in ("one", "two")
    )
    return Tenant(organization, one, two)


def with_key(new: NewKey) -> Api:
    """A client that sends this key."""
    return Api(headers={"Authorization": f"Bearer {new.secret}"})
