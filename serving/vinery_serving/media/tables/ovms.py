"""The media options of OpenVINO Model Server, as rules.

There, `--allowed_media_domains` lists hosts with commas between them, compared exactly, without
ports or wildcards; `all` allows every host. `--allowed_local_media_path` is one folder. Redirects
are not followed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError

from vinery_accounts.access import audit
from vinery_accounts.resources.base import EVERYTHING
from vinery_serving.media.tables.models import MediaFolder, MediaRule
from vinery_serving.media.tables.resource import MEDIA_FOLDERS, MEDIA_RULES

Rule = MediaRule | MediaFolder


def rules_of(flags: Mapping[str, str]) -> list[Rule]:
    """Return rules of the platform for the flags of a model server, by name."""
    hosts = (each.strip() for each in flags.get("allowed_media_domains", "").split(","))
    values = {
        "schemes": ["https", "http"],
        "max_redirects": 0,
        "note": "from allowed_media_domains",
    }
    rules: list[Rule] = [MediaRule(host=each, **values) for each in dict.fromkeys(hosts) if each]
    if folder := flags.get("allowed_local_media_path"):
        rules.append(MediaFolder(folder=folder, note="from allowed_local_media_path"))
    return rules


def store(rules: Sequence[Rule]) -> tuple[list[str], list[str]]:
    """Store all rules, or none. Returns the new ones, and those that there were already. Raises
    ValidationError."""
    advice = "Name the hosts that clients need, such as with: vinery media allow '*.example.org'"
    for host in (each.host for each in rules if isinstance(each, MediaRule)):
        if host == "all":
            text = "`all` allows every host there. Vinery has no such rule."
            raise ValidationError(f"{text} {advice}")
        if "*" in host:
            text = f"{host} matches no host there: it is compared exactly."
            raise ValidationError(f"{text} {advice}")
    with audit.writing():
        is_new = [_add(each) for each in rules]
    new = [str(rule) for rule, is_new_ in zip(rules, is_new, strict=True) if is_new_]
    return new, [str(each) for each in rules if str(each) not in new]


def _add(rule: Rule) -> bool:
    """Return whether there was no such rule."""
    resource: Any = MEDIA_RULES if isinstance(rule, MediaRule) else MEDIA_FOLDERS
    column = "host" if isinstance(rule, MediaRule) else "folder"
    rule.clean_fields()  # normalises the host or the folder
    same = {column: getattr(rule, column), "organization": None}
    if resource.rows(EVERYTHING).filter(**same).exists():
        return False
    names = [name for name in resource.writable() if name not in ("organization", "project")]
    resource.create(EVERYTHING, {name: getattr(rule, name) for name in names})
    return True
