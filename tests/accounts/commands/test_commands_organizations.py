"""Organisations and projects by command."""

from __future__ import annotations

from tests.accounts.commands.conftest import Vinery
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import (
    Organization,
    Project,
)


def test_organisations_and_projects_are_created_renamed_and_switched(vinery_: Vinery) -> None:
    assert vinery_("organization", "create", "acme").status == 0
    assert vinery_("project", "create", "search", "--organization", "acme").status == 0
    assert (
        "a project of that name"
        in vinery_(*("project", "create", "search", "--organization", "acme")).err
    )
    vinery_("project", "rename", "acme/search", "find")
    vinery_("project", "deactivate", "find")
    vinery_("organization", "rename", "acme", "Acme")
    vinery_("organization", "deactivate", "Acme")

    (project,) = vinery_("project", "list", "--json", "--organization", "Acme").rows
    (organization,) = vinery_("organization", "list", "--json").rows
    assert (project["name"], project["active"], project["keys"]) == ("find", False, 0)
    assert (organization["name"], organization["active"]) == ("Acme", False)
    vinery_("organization", "activate", "Acme")
    assert Organization.objects.get().is_active
    assert "Acme" in vinery_("organization", "list").out


def test_an_organisation_is_removed_after_its_projects(vinery_: Vinery, search: Project) -> None:
    key = find_key(vinery_("key", "create", "--name", "x", "--user", "alice").out.strip())
    vinery_("key", "revoke", str(key.pk))

    result = vinery_("project", "remove", "acme/search")
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("vinery: acme / search has keys")
    result = vinery_("organization", "remove", "acme")
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("vinery: acme has projects")

    key.delete()
    assert vinery_("project", "remove", "acme/search").out == "Removed: acme / search.\n"
    assert vinery_("organization", "remove", "acme").out == "Removed: acme.\n"
    assert not Organization.objects.exists()


def test_a_taken_project_name_is_refused_in_one_line(vinery_: Vinery, search: Project) -> None:
    vinery_("project", "create", "other", "--organization", "acme")

    result = vinery_("project", "rename", "other", "search")

    assert result.status == 1
    assert "This organisation has a project of that name." in result.err


def test_an_ambiguous_project_is_named_with_its_organisation(
    vinery_: Vinery, search: Project
) -> None:
    vinery_("organization", "create", "other")
    vinery_("project", "create", "search", "--organization", "other")

    result = vinery_("project", "deactivate", "search")
    assert result.err == "vinery: Several projects are named search. Write ORGANISATION/search.\n"
    assert vinery_("project", "deactivate", "other/search").status == 0
    search.refresh_from_db()
    assert search.is_active
