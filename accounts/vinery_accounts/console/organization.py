"""Pages of an organisation: its projects, its webhooks, and where a role holds."""

from collections.abc import Iterable
from typing import Any, Final

from django import forms

from vinery_accounts.access.access import Access
from vinery_accounts.console.menu import scope_named
from vinery_accounts.console.page import at
from vinery_accounts.console.rows import Row, Table, add_page, cells_of
from vinery_accounts.models import Delivery, DeliveryState, Organization, Project, Role
from vinery_accounts.resources.alerts import WEBHOOKS
from vinery_accounts.resources.base import columns_of
from vinery_accounts.resources.organizations import ORGANIZATIONS, PROJECTS

_MAX_CHOICES: Final = 200


class ScopeField(forms.ChoiceField):
    """A choice among organisations and projects where the caller has at least a role. `others` are
    further choices, whose values are texts."""

    def __init__(
        self, access: Access, least: Role, others: Iterable[tuple[str, str]] = (), **details: Any
    ) -> None:
        super().__init__(choices=[*others, *_scopes(access, least)], **details)
        self._access = access

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return scope_named(self._access, text) or text


def _scopes(access: Access, least: Role) -> list[tuple[str, Any]]:
    """Return the choices, a group for each organisation."""
    found = {}
    for each in access.rows(Organization).order_by("name")[:_MAX_CHOICES]:
        whole = (f"organization:{each.pk}", f"All of {each.name}")
        found[each.pk] = (each.name, [whole] if access.leads(each.pk, None, least) else [])
    for project in access.rows(Project).order_by("name")[:_MAX_CHOICES]:
        number = project.organization_id
        if number in found and access.leads(number, project.pk, least):
            found[number][1].append((f"project:{project.pk}", f"Project {project.name}"))
    return list(found.values())


class Scope(Row):
    """An organisation or a project, with links to what is in it."""

    note = "While it is deactivated, its keys are refused."

    def links(self) -> dict[str, str]:
        kind, number = self.row._meta.model_name, self.row.pk
        asked = f"{kind}={number}"
        own = {
            "Projects": f"projects/?{asked}",
            "Members": f"members/?{asked}",
            "Service accounts": f"service-accounts/?{asked}",
        }
        if kind == "project":
            own = {
                "Roles in this project alone": f"members/?{asked}",
                "Stored responses": f"stored-responses/?project_id={number}",
            }
        own |= {
            "Keys": f"keys/?{asked}",
            "Requests": f"requests/?{asked}",
            "Usage by key": f"usage/?by=key&{asked}",
            "Usage by user": f"usage/?by=user&{asked}",
        }
        if self.access.rows_to_limit(type(self.row)).filter(pk=number).exists():
            own["Set a limit"] = f"limits/new/?of={kind}:{number}"
        return own


for each in (ORGANIZATIONS, PROJECTS):
    add_page(Scope, each, f"{each.path}/<int:row_id>/", f"{each.path}-row")


_DELIVERY: Final = columns_of(
    "about state tries=num_tries sent=sent_at next_try last_error=error",
    next_try=lambda each: each.due_at if each.state == DeliveryState.PENDING else "",
)


@at("webhooks/<int:row_id>/", "webhooks-row")
class WebhookPage(Row):
    resource = WEBHOOKS
    presses = ("test", "retry")
    note = "A webhook that does not answer is tried again for almost a day. Tests are not listed."

    def sections(self) -> list[Table]:
        found = Delivery.objects.filter(webhook=self.row).select_related("alert")
        newest = found.order_by("-id")[:20]
        rows = [("", each, cells_of(each, _DELIVERY)) for each in newest]
        return [Table("Last deliveries", rows)]
