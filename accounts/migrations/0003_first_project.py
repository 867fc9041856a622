"""Keys that were made before there were projects belong to the first one."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.models import Q


def give_keys_a_project(apps: Any, schema_editor: Any) -> None:
    """An organisation and a project of the name `default`, whose owners the administrators
    are; everybody else who has keys is a member."""
    keys = apps.get_model("accounts", "ApiKey").objects.filter(project=None)
    users = apps.get_model("accounts", "User").objects
    if not keys.exists():
        return
    organization, _ = apps.get_model("accounts", "Organization").objects.get_or_create(
        name="default"
    )
    project, _ = apps.get_model("accounts", "Project").objects.get_or_create(
        organization=organization, name="default"
    )
    memberships = apps.get_model("accounts", "Membership").objects
    is_concerned = Q(api_keys__isnull=False) | Q(is_superuser=True)
    for user in users.filter(is_concerned).distinct():
        role = "owner" if user.is_superuser else "member"
        memberships.get_or_create(
            user=user, organization=organization, project=None, defaults={"role": role}
        )
    keys.update(project=project)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_people_limits_audit")]
    operations = [migrations.RunPython(give_keys_a_project, migrations.RunPython.noop)]
