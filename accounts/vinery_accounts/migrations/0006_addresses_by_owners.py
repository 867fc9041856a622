"""Addresses that owners of organisations gave to users before an upgrade are not confirmed.

The audit log has who gave each address. Those of administrators and of the command line stay
confirmed, and those of accounts that the issuer knows already.
"""

from typing import Any

from django.db import migrations


def withdraw_confirmations(apps: Any, schema_editor: Any) -> None:
    """Mark addresses that a user without superuser status gave last."""
    users = apps.get_model("accounts", "User").objects
    givers: dict[str, int | None] = {}
    entries = apps.get_model("accounts", "AuditEntry").objects.order_by("number")
    changes = entries.filter(action__in=("user.create", "user.update"))
    rows = changes.values_list("target_id", "actor_id", "after")
    for target_id, actor_id, after in rows.iterator(chunk_size=1000):
        if "email" in (after or {}):
            givers[target_id] = actor_id
    superusers = set(users.filter(is_superuser=True).values_list("pk", flat=True))
    issued = apps.get_model("socialaccount", "SocialAccount").objects
    linked = set(issued.values_list("user_id", flat=True))
    doubtful = [
        int(target_id)
        for target_id, giver in givers.items()
        if giver is not None and giver not in superusers and int(target_id) not in linked
    ]
    for user_id in doubtful:
        users.filter(pk=user_id).exclude(email="").update(is_email_confirmed=False)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_concurrent_answers"),
        ("socialaccount", "0001_initial"),
    ]

    operations = [migrations.RunPython(withdraw_confirmations, migrations.RunPython.noop)]
