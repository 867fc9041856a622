"""Commands that run in the process of the test, and their organisation and project."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import vinery_platform.cli
from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import ApiKey, Organization, Project, Role, User


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The one line of a command that was refused."""
        assert (self.status, self.out, self.err.count("\n")) == (1, "", 1), self
        assert self.err.startswith("vinery: ")
        return self.err.removeprefix("vinery: ")

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.out)
        return rows


Vinery = Callable[..., Result]


def created_key(vinery_: Vinery, *words: str) -> ApiKey:
    """Create the key ci of alice by command."""
    found = vinery_("key", "create", "--name", "ci", "--user", "alice", *words)
    return find_key(found.out.strip())


@pytest.fixture
def vinery_(db: None, capsys: pytest.CaptureFixture[str]) -> Vinery:
    """Return a function that runs a command in this process, with the database of the test."""

    def run(*words: str) -> Result:
        capsys.readouterr()
        status = vinery_platform.cli.main(list(words))
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def search(db: None) -> Project:
    """Return the project `search` of `acme`. Alice is a member."""
    acme = changes.add(Organization(name="acme"))
    project = changes.add(Project(organization=acme, name="search"))
    changes.set_role(User.objects.create_user("alice"), acme, Role.MEMBER)
    return project
