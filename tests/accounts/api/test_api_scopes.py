"""What keys of each scope may ask of the management API: the table of the guide holds on every
route."""

import re
from pathlib import Path

import pytest
from api_client import Api, Tenant
from isolation_probes import routes

from vinery_accounts.models import Role

GUIDE = Path(__file__).parents[3] / "docs" / "accounts.md"


def allowed(api: Api) -> dict[str, set[str]]:
    """The methods that the scope of the key lets pass, by the first part of the path."""
    found: dict[str, set[str]] = {}
    for route in routes(("api/",)):
        if "schema" in route.template:
            continue  # for all
        methods = {each.upper() for each in route.actions} - {"HEAD"}
        for method in methods if hasattr(route.view, "actions") else {"GET"}:
            path = route.path(4711).removeprefix("/api/")
            answer = api.request(method, path, {} if method != "GET" else None)
            is_refused = answer.status_code == 403 and b"lacks the scope" in answer.content
            assert is_refused or answer.status_code != 401, path
            passed = found.setdefault(path.split("/")[0], set())
            passed |= set() if is_refused else {method}
    return found


def promised() -> dict[str, set[str]]:
    """The resources that the table lets keys of a scope read, by the scope."""
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", GUIDE.read_text("utf-8"), re.MULTILINE)
    return {scope: set(re.findall(r"`/api/([a-z-]+)/`", reads)) for scope, reads, _ in rows}


@pytest.mark.parametrize("scope", ["inference", "usage", "manage"])
def test_the_scope_of_a_key_decides_what_it_reads_and_writes(ours: Tenant, scope: str) -> None:
    owner = ours.user("boss", Role.OWNER)
    found = allowed(ours.with_key(ours.one, owner=owner, scopes=[scope]))
    assert len(found) > 20

    if scope == "manage":
        assert all(found.values())
        return
    assert {path for path, methods in found.items() if methods} == promised()[scope]
    assert set().union(*found.values()) <= {"GET"}
