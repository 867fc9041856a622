"""The menu of the console: which pages there are, in which group, and who may open them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vinery_accounts.services.access import Access


def _everyone(_: Access) -> bool:
    return True


def _leaders(access: Access) -> bool:
    return access.is_leader


def _leaders_of_organizations(access: Access) -> bool:
    return access.leads_organization


def _owners(access: Access) -> bool:
    return access.owns_scope


@dataclass(frozen=True, slots=True)
class Entry:
    """A page. `name` is that of its URL, too."""

    name: str
    title: str
    may_open: Callable[[Access], bool] = _everyone


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    entries: Sequence[Entry]


_GROUPS: Final = (
    Group(
        "Usage",
        (
            Entry("overview", "Overview"),
            Entry("usage", "Usage"),
            Entry("keys", "Keys"),
            Entry("limits", "Limits"),
            Entry("refusals", "Rate limit events"),
            Entry("models", "Models"),
            Entry("quarantine", "Quarantine"),
        ),
    ),
    Group(
        "Organisation",
        (
            Entry("members", "Members", _leaders),
            Entry("projects", "Projects", _leaders),
            Entry("media", "Media", _owners),
            Entry("webhooks", "Webhooks", _leaders_of_organizations),
            Entry("alerts", "Alerts", _leaders),
            Entry("audit", "Audit log", _leaders_of_organizations),
        ),
    ),
)


def menu_of(access: Access) -> list[Group]:
    """Return the groups with the pages that the user may open. Empty groups are left out."""
    groups = [
        Group(group.name, [each for each in group.entries if each.may_open(access)])
        for group in _GROUPS
    ]
    return [group for group in groups if group.entries]


def may_open(access: Access, name: str) -> bool:
    """Return whether the user may open the page, and the pages below it."""
    entries = (entry for group in _GROUPS for entry in group.entries)
    return all(entry.may_open(access) for entry in entries if entry.name == name)
