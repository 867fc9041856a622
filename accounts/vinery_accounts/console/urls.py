"""Everything under `/console/`."""

from django.urls import URLPattern, path

from vinery_accounts.console.keys import ActOnKey, KeyPage, Keys, MakeKey, SwitchKey
from vinery_accounts.console.limits import ChangeLimit, Limits, RemoveLimit, SetLimit
from vinery_accounts.console.members import (
    ActOnMember,
    Answer,
    Invite,
    LinkForMember,
    Member,
    Members,
    NewMember,
    Withdraw,
)
from vinery_accounts.console.organization import (
    ActOnProject,
    ActOnWebhook,
    NewProject,
    NewWebhook,
    ProjectPage,
    Projects,
    RemoveWebhook,
    WebhookPage,
    Webhooks,
)
from vinery_accounts.console.overview import Overview
from vinery_accounts.console.page import Page
from vinery_accounts.console.records import Alerts, AuditLog, Refusals
from vinery_accounts.console.rows import generated_pages
from vinery_accounts.console.usage import Usage, UsageTable


def _actions(rows: str, name: str, page: type[Page], *actions: str) -> list[URLPattern]:
    """Return a URL for each action on a row: `keys/7/revoke/`, with the name `key-revoke`."""
    return [
        path(f"{rows}/<int:row_id>/{does}/", page.as_view(does=does), name=f"{name}-{does}")
        for does in actions
    ]


urlpatterns = [
    path("", Overview.as_view(), name="overview"),
    path("usage/", Usage.as_view(), name="usage"),
    path("usage/table.csv", UsageTable.as_view(), name="usage-table"),
    path("keys/", Keys.as_view(), name="keys"),
    path("keys/new/", MakeKey.as_view(), name="key-new"),
    path("keys/<int:row_id>/", KeyPage.as_view(), name="key"),
    *_actions("keys", "key", ActOnKey, "rotate", "revoke"),
    *_actions("keys", "key", SwitchKey, "pause", "resume"),
    path("limits/", Limits.as_view(), name="limits"),
    path("limits/new/", SetLimit.as_view(), name="limit-new"),
    path("limits/<int:row_id>/", ChangeLimit.as_view(), name="limit"),
    path("limits/<int:row_id>/remove/", RemoveLimit.as_view(), name="limit-remove"),
    path("refusals/", Refusals.as_view(), name="refusals"),
    path("members/", Members.as_view(), name="members"),
    path("members/new/", NewMember.as_view(), name="member-new"),
    path("members/invite/", Invite.as_view(), name="member-invite"),
    path("members/<int:row_id>/", Member.as_view(), name="member"),
    path("members/<int:row_id>/link/", LinkForMember.as_view(), name="member-link"),
    *_actions("members", "member", ActOnMember, "remove", "deactivate", "activate"),
    path("invitations/<int:row_id>/withdraw/", Withdraw.as_view(), name="invitation-withdraw"),
    *_actions("invitations", "invitation", Answer, "accept", "decline"),
    path("projects/", Projects.as_view(), name="projects"),
    path("projects/new/", NewProject.as_view(), name="project-new"),
    path("projects/<int:row_id>/", ProjectPage.as_view(), name="project"),
    *_actions("projects", "project", ActOnProject, "remove", "deactivate", "activate"),
    path("webhooks/", Webhooks.as_view(), name="webhooks"),
    path("webhooks/new/", NewWebhook.as_view(), name="webhook-new"),
    path("webhooks/<int:row_id>/", WebhookPage.as_view(), name="webhook"),
    *_actions("webhooks", "webhook", ActOnWebhook, "test", "retry", "rotate"),
    path("webhooks/<int:row_id>/remove/", RemoveWebhook.as_view(), name="webhook-remove"),
    path("alerts/", Alerts.as_view(), name="alerts"),
    path("audit/", AuditLog.as_view(), name="audit"),
    *generated_pages(),
]
