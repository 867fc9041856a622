"""The tables of people, keys, limits and usage."""

from accounts.models.alerts import (
    Alert,
    Delivery,
    DeliveryState,
    KeyEvent,
    KeyReminder,
    Webhook,
)
from accounts.models.audit import AuditEntry
from accounts.models.captures import Capture
from accounts.models.keys import ApiKey, ApiKeyQuerySet, KeyState, KeyUse, Scope
from accounts.models.limits import (
    Limit,
    LimitScope,
    ModelWeight,
)
from accounts.models.people import (
    Membership,
    Organization,
    Project,
    Role,
    User,
    UserManager,
)
from accounts.models.rollups import (
    DayRollup,
    HourRollup,
    MinuteRollup,
    RetentionCutoff,
    Rollup,
    UsageSlice,
)
from accounts.models.usage import RefusedRequest, UsageRecord

__all__ = [
    "Alert",
    "ApiKey",
    "ApiKeyQuerySet",
    "AuditEntry",
    "Capture",
    "DayRollup",
    "Delivery",
    "DeliveryState",
    "HourRollup",
    "KeyEvent",
    "KeyReminder",
    "KeyState",
    "KeyUse",
    "Limit",
    "LimitScope",
    "Membership",
    "MinuteRollup",
    "ModelWeight",
    "Organization",
    "Project",
    "RefusedRequest",
    "RetentionCutoff",
    "Role",
    "Rollup",
    "Scope",
    "UsageRecord",
    "UsageSlice",
    "User",
    "UserManager",
    "Webhook",
]
