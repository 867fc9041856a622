"""`vinery media`: from which hosts and folders media of requests may be fetched."""

import argparse
from pathlib import Path
from typing import Any, Final

from vinery_accounts.access import audit
from vinery_accounts.resources.base import EVERYTHING, Resource
from vinery_platform.cli import resource, shape
from vinery_platform.cli.resource import Option
from vinery_serving.media.tables import ovms
from vinery_serving.media.tables.models import MediaRule
from vinery_serving.media.tables.resource import (
    MEDIA_DENIALS,
    MEDIA_FOLDERS,
    MEDIA_LIMITS,
    MEDIA_RULES,
)
from vinery_serving.media.tables.tester import MediaVerdictSerializer, test
from vinery_serving.media.tables.values import host_pattern, overlaps
from vinery_serving.models.ovms.sources import flags_of

_WHAT: Final = "HOST_OR_FOLDER"
_WHAT_HELP: Final = (
    "a host such as images.example.org, a domain such as *.example.org for all hosts below it, or "
    "an absolute path of a folder"
)
_OF_BOTH: Final = {name: Option() for name in ("max_bytes", "max_pixels", "note")}
_OF_HOSTS: Final = {
    "schemes": Option("--scheme"),
    "ports": Option("--port"),
    "content_types": Option("--type"),
    "max_redirects": Option("--max-redirects"),
    "timeout_s": Option("--timeout", metavar="SECONDS"),
    "networks": Option("--network", metavar="CIDR"),
}
_COLUMNS: Final = ("kind", "id", "scope", "whose", "what", "ports", "max_bytes", "active", "note")


def add_media(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    epilog = "for example:  vinery media allow '*.example.org' --type 'image/*'"
    one = shape.add_command(actions, "allow", allow, epilog=epilog)
    one.add_argument("what", metavar=_WHAT, help=_WHAT_HELP)
    _add_scope(one)
    resource.add_fields(one, resource.fields_of(MEDIA_RULES), {**_OF_HOSTS, **_OF_BOTH})
    one = shape.add_command(actions, "deny", deny)
    one.add_argument("what", metavar=_WHAT, help=_WHAT_HELP)
    _add_scope(one)
    shape.add_switch(one, "--remove", "remove it instead")
    shape.add_json(shape.add_command(actions, "list", list_rules))
    resource.add_list(actions, MEDIA_DENIALS, name="denials")
    one = shape.add_command(actions, "limit", limit)
    one.add_argument("num", metavar="N", help="0 for none; off: removes the number")
    _add_scope(one)
    one = shape.add_command(actions, "test", run_test)
    one.add_argument("what", metavar="URL_OR_PATH", help="as a client would send it")
    _add_scope(one)
    shape.add_json(one)
    epilog = "for example:  vinery media import --file start-model-server.sh"
    one = shape.add_command(actions, "import", import_, epilog=epilog)
    for name, metavar, text in _OPTIONS:
        one.add_argument(f"--{name}", f"--{name.replace('_', '-')}", metavar=metavar, help=text)
    text = "a script, service or compose file with the options of the model server"
    one.add_argument("--file", type=Path, metavar="FILE", help=text)


def _add_scope(parser: argparse.ArgumentParser) -> None:
    scope = parser.add_mutually_exclusive_group()
    text = "narrow the rules of the platform for this {} (default: the platform itself)"
    for name in ("organization", "project"):
        scope.add_argument(f"--{name}", metavar="NAME", help=text.format(name))


def _scope(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.project:
        project = resource.project_named(arguments.project)
        return {"organization": project.organization, "project": project}
    name = arguments.organization
    return {"organization": resource.organization_named(name) if name else None, "project": None}


def _target(what: str) -> tuple[Resource[Any], dict[str, str]]:
    """Return the resource and the column of a host or a folder. Raises ValueError."""
    if what.startswith("/"):
        return MEDIA_FOLDERS, {"folder": what.rstrip("/") or "/"}
    return MEDIA_RULES, {"host": host_pattern(what)}


# -- allow, deny


def allow(arguments: argparse.Namespace) -> str:
    """Allow a host or a folder. Media of requests may then be fetched from the host or read from
    the folder; a rule that exists is changed. In force within a second, in all processes."""
    target, column = _target(arguments.what)
    values = resource.values_of(arguments)
    wrong = [_OF_HOSTS[name].flag for name in values if name in _OF_HOSTS]
    if target is MEDIA_FOLDERS and wrong:
        raise shape.Failure(f"{wrong[0]} is for hosts: leave it out for a folder.")
    row = resource.put(target, {**_scope(arguments), **column}, {**values, "is_active": True})
    narrows = "" if row.organization_id is None else " as far as the platform allows it"
    return f"{row} is allowed for {row.whose}{narrows}. In force within a second."


def deny(arguments: argparse.Namespace) -> str:
    """Deactivate or remove the rule of a host or a folder. An inactive rule allows nothing. In an
    organisation or a project it still narrows; without its last rule, the organisation or the
    project has the rules of the wider scope again."""
    target, column = _target(arguments.what)
    scope = _scope(arguments)
    with audit.writing():
        row = target.rows(EVERYTHING).filter(**scope, **column).first()
        if row is None:
            (what,) = column.values()
            raise shape.Failure(f"There is no rule for {what}. See: vinery media list")
        text = f"{row} is no longer allowed for {row.whose}."
        if arguments.remove:
            target.remove(EVERYTHING, row)
        else:
            target.change(EVERYTHING, row, {"is_active": False})
    return f"{text} {_still_allowed(row)}".strip()


def _still_allowed(row: Any) -> str:
    if not isinstance(row, MediaRule):
        return ""
    same = MediaRule.objects.filter(
        organization=row.organization_id, project=row.project_id, is_active=True
    )
    others = [other.host for other in same if overlaps(other.host, row.host)]
    return f"Hosts of it are still allowed by: {', '.join(others)}." if others else ""


# -- list, limit


def list_rules(arguments: argparse.Namespace) -> int:
    """List allowed hosts and folders."""
    kinds: dict[str, Resource[Any]] = {"host": MEDIA_RULES, "folder": MEDIA_FOLDERS}
    rows = [
        {
            **dict.fromkeys(_COLUMNS, ""),
            **each.serializer(context={"access": EVERYTHING}).to_representation(row),
            "kind": kind,
            "whose": row.whose,
            "what": str(row),
            "active": getattr(row, "is_active", True),
        }
        for kind, each in (kinds | {"limit": MEDIA_LIMITS}).items()
        for row in each.rows(EVERYTHING).order_by("organization_id", "project_id", *each.ordering)
    ]
    shape.print_rows(rows, _COLUMNS, as_json=arguments.json)
    return 0


def limit(arguments: argparse.Namespace) -> str:
    """Set how many pictures, videos and documents a request may have. The smallest number of the
    platform, the organisation and the project counts."""
    scope = _scope(arguments)
    if arguments.num == "off":
        if (row := MEDIA_LIMITS.rows(EVERYTHING).filter(**scope).first()) is None:
            return "There was no number."
        MEDIA_LIMITS.remove(EVERYTHING, row)
        return "The number is removed."
    if not (arguments.num.isascii() and arguments.num.isdecimal()):
        raise shape.Failure(f"{arguments.num} is no number. Write one, or off.")
    row = resource.put(MEDIA_LIMITS, scope, {"max_media": int(arguments.num)})
    return f"A request of {row.whose} may have {row.max_media} media."


# -- test


def run_test(arguments: argparse.Namespace) -> int:
    """Test whether a URL or a file may be sent, step by step. The steps are those of a request, and
    nothing is kept. The exit status is 0 if it is allowed, and 1 if not."""
    scope = _scope(arguments)
    organization, project = (row and row.pk for row in scope.values())
    verdict = test(arguments.what, organization, project)
    if arguments.json:
        print(shape.json_of(MediaVerdictSerializer(verdict).data))
    else:
        results = {True: "ok", False: "refused", None: ""}
        rows = [
            {"step": step.name, "result": results[step.is_ok], "details": step.text}
            for step in verdict.steps
        ]
        shape.print_rows(rows, ("step", "result", "details"), as_json=False)
    return 0 if verdict.is_allowed else 1


# -- import

_OPTIONS: Final = (
    ("allowed_media_domains", "LIST", "hosts"),
    ("allowed_local_media_path", "PATH", "a folder"),
)


def import_(arguments: argparse.Namespace) -> str:
    """Import the rules of OpenVINO Model Server. Its two options have the same values here: hosts
    separated by commas, each of them exact, and one folder. Redirects are not followed, as there.
    Rules that exist stay as they are."""
    text = ""
    if arguments.file is not None:
        try:
            text = arguments.file.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise shape.Failure(f"{arguments.file} cannot be read: {error}.") from error
    given = {name: value for name, *_ in _OPTIONS if (value := getattr(arguments, name))}
    rules = ovms.rules_of({**flags_of(text), **given})
    if not rules:
        raise shape.Failure(
            "There is no --allowed_media_domains and no --allowed_local_media_path."
        )
    new, known = ovms.store(rules)
    kept = f" {len(known)} existed: {', '.join(known)}." if known else ""
    return f"Imported: {', '.join(new) or 'nothing'}.{kept}"
