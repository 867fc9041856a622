"""Django's admin. Django finds the pages through this import."""

from vinery_accounts.admin import people, usage
from vinery_accounts.admin.base import register
from vinery_accounts.resources import (
    alerts,
    keys,
    limits,
    organizations,
    records,
    users,
)

__all__ = ["people", "usage"]

for _resource in (
    *(organizations.ORGANIZATIONS, organizations.PROJECTS, users.MEMBERSHIPS, keys.KEYS),
    *(limits.LIMITS, limits.MODEL_WEIGHTS, alerts.WEBHOOKS, alerts.ALERTS),
    *(records.REFUSALS, records.QUARANTINE, records.CAPTURES, records.AUDIT),
):
    register(_resource)
