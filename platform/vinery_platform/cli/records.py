"""`vinery requests`, `refusals`, `quarantine`, `capture`, `stored`, `audit`, `alerts`: what runs on
this host, and what is recorded."""

import argparse
import re
import smtplib
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.core.mail import send_mail
from django.db.models import QuerySet
from django.http import Http404

from vinery_accounts.access import audit as audit_log
from vinery_accounts.models import AuditEntry, Capture, QuarantinedRequest, Webhook
from vinery_accounts.resources.alerts import ALERTS, WEBHOOKS
from vinery_accounts.resources.base import EVERYTHING, Resource
from vinery_accounts.resources.records import AUDIT, CAPTURES, QUARANTINE, REFUSALS
from vinery_accounts.resources.stored import CHATS, CONVERSATIONS, RESPONSES, forget, read_items
from vinery_accounts.usage import export
from vinery_platform.cli import shape
from vinery_platform.cli.resource import (
    Option,
    RowCommands,
    add_filters,
    add_list,
    add_resource,
    announced,
    filtered,
    finder,
    ids_of,
    only,
    organization_named,
    webhook_of,
)
from vinery_serving.models import live_requests

# -- Requests that run now

_LIVE_HEADS: Final = (
    *("request_id", "since", "state", "user", "key", "model", "tokens", "tokens_per_s"),
)


def add_requests(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    shape.add_json(shape.add_command(actions, "live", show_live))
    to_stop = shape.add_command(actions, "stop", stop)
    to_stop.add_argument("id", metavar="REQUEST_ID", help="from `requests live`")
    to_stop.add_argument("--reason", metavar="TEXT", default="", help="the client reads it")


def show_live(arguments: argparse.Namespace) -> int:
    """List the requests that run now, the oldest first."""
    rows = [
        {
            **live_requests.LiveRequestSerializer(row).data,
            "since": row.admission.started_at,
            "user": row.admission.username,
            "key": row.admission.key_name,
            "tokens": row.num_output_tokens,
            "tokens_per_s": row.tokens_per_s and round(row.tokens_per_s, 1),
        }
        for row in live_requests.live_rows(EVERYTHING)
    ]
    shape.print_rows(rows, _LIVE_HEADS, as_json=arguments.json)
    return 0


def stop(arguments: argparse.Namespace) -> str:
    """Stop a request. Its client gets the error `stopped` with the reason."""
    if len(arguments.reason) > live_requests.MAX_REASON:
        raise shape.Failure(f"The reason may have at most {live_requests.MAX_REASON} characters.")
    try:
        live_requests.stop(EVERYTHING, arguments.id, arguments.reason)
    except Http404 as error:
        raise shape.Failure(str(error)) from None
    return f"{arguments.id} is stopped."


# -- Refusals and the quarantine


_REFUSAL_FILTERS: Final = {
    "limit_id": Option("--limit", metavar="ID", help="only by this limit"),
    "request_id": Option("--request", metavar="ID"),
}


def add_refusals(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    add_list(actions, REFUSALS, options=_REFUSAL_FILTERS, usual=shape.DAY)
    to_file = shape.add_command(actions, "export", export_refusals)
    add_filters(to_file, REFUSALS, _REFUSAL_FILTERS, (), shape.DAY)
    shape.add_file(to_file)


def export_refusals(arguments: argparse.Namespace) -> int:
    """Write refusals to a file. It has one line for each limit that refused a request or cut it
    short, in order of time."""
    rows = filtered(REFUSALS, arguments)
    texts = export.export_refusals(rows, export.Format(arguments.format))
    return shape.write_file(arguments.output, texts)


def add_quarantine(parser: argparse.ArgumentParser) -> None:
    filters = {"request_id": Option("--request", metavar="ID")}
    rows = QuarantinedRequest.objects.all()
    quarantined = finder(rows, "digest", "quarantine list", "quarantined request")
    of_row = ("digest", "DIGEST", "from its list")
    add_resource(parser, QUARANTINE, *of_row, find=quarantined, filters=filters)


# -- Captures


def add_capture(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    text = (
        "List captured requests, the newest first, without their texts. What a project captures "
        "is set with: vinery project change NAME --capture-hours N"
    )
    add_list(actions, CAPTURES, text, options={"request_id": Option("--request", metavar="ID")})
    of_request = ("request", "REQUEST_ID", "the x-request-id of its response")
    one = RowCommands(actions, CAPTURES, capture_of, *of_request)
    shape.add_json(one.add("show", show_texts))
    one.add("delete", delete_capture)


def delete_capture(row: Capture, _: argparse.Namespace) -> str:
    """Delete a captured request now."""
    CAPTURES.remove(EVERYTHING, row)
    return f"{row.request_id} is deleted."


_MISSING: Final = {
    "is_redacted": "Parts of the texts were redacted before they were stored.",
    "is_body_cut": "The request is not stored completely.",
    "is_answer_cut": "The response is not stored completely.",
}


def show_texts(row: Capture, arguments: argparse.Namespace) -> int:
    """Print the request and the response of a captured request. This writes an entry of the audit
    log."""
    body = CAPTURES.answer_of("retrieve")(row).data
    if arguments.json:
        print(shape.json_of(body))
        return 0
    for column, notice in _MISSING.items():
        if body[column]:
            shape.print_note(notice)
    print(body["body"], body["answer"], sep="\n\n")
    return 0


def capture_of(request_id: str) -> Capture:
    return only(
        Capture.objects.filter(request_id=request_id),
        f"There is no capture of {request_id}: its project captured no texts then, or they have "
        "expired. See: vinery capture list",
    )


# -- Stored responses, conversations and chats

_STORED: dict[str, Resource[Any]] = {"resp": RESPONSES, "conv": CONVERSATIONS, "chatcmpl": CHATS}


def add_stored(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    for resource in _STORED.values():
        add_list(actions, resource, name=resource.path.removeprefix("stored-"))
    about = ("id", "ID", "the id of a response, a conversation or a chat")
    one = RowCommands(actions, RESPONSES, _stored_of, *about)
    one.add("show", show_stored)
    one.add("remove", remove_stored)
    forgotten = shape.add_command(actions, "forget", forget_stored)
    for name, kind in (("project", "a project"), ("user", "a user")):
        forgotten.add_argument(f"--{name}", metavar="ID_OR_NAME", help=f"what is stored for {kind}")


def _stored_resource(public_id: str) -> Resource[Any]:
    return _STORED.get(re.split("[_-]", public_id)[0], RESPONSES)


def _stored_of(public_id: str) -> Any:
    resource = _stored_resource(public_id)
    see, kind = f"stored {resource.path.removeprefix('stored-')}", resource.one.partition(" ")[2]
    return finder(resource.rows(EVERYTHING), "public_id", see, kind)(public_id)


def show_stored(row: Any, _: argparse.Namespace) -> int:
    """Print what was said, as JSON. This writes an entry of the audit log."""
    print(shape.json_of(read_items(row)))
    return 0


def remove_stored(row: Any, _: argparse.Namespace) -> str:
    """Delete a response, a conversation or a chat."""
    _stored_resource(row.public_id).remove(EVERYTHING, row)
    return f"Removed: {row}."


def forget_stored(arguments: argparse.Namespace) -> str:
    """Delete all that is stored for a project, or for a user, or for a user in a project."""
    given = {kind: vars(arguments)[kind] for kind in ("project", "user") if vars(arguments)[kind]}
    if not given:
        raise shape.Failure("Name a project, a user, or both: --project, --user")
    owner = {f"{kind}_id": ids_of(kind, [word])[0] for kind, word in given.items()}
    return f"{forget(EVERYTHING, **owner)['num_deleted']} are deleted."


# -- The audit log


def add_audit(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    show = add_list(actions, AUDIT, without=("target_kind", "target_id"), narrow=_on_target)
    text = "only with targets of this kind, such as key; or with this one, such as key:12"
    show.add_argument("--target", metavar="KIND[:ID]", default="", help=text)
    check = shape.add_command(actions, "verify", verify)
    check.add_argument("--newest", metavar="HASH", help="a hash that was once the newest")


def _on_target(entries: QuerySet[AuditEntry], arguments: argparse.Namespace) -> QuerySet[Any]:
    kind, _, target_id = arguments.target.partition(":")
    wanted = {"target_kind": kind, "target_id": target_id}
    return entries.filter(**{column: value for column, value in wanted.items() if value})


def verify(arguments: argparse.Namespace) -> int:
    """Check that no entry was changed, removed or inserted, and print the newest hash. Keep that
    hash elsewhere, and give it the next time: then entries that were cut off the end are missed,
    too. The exit status is 1 for a broken log."""
    verdict = audit_log.verify(arguments.newest)
    if verdict.broken is not None:
        raise shape.Failure(f"The audit log is broken ({verdict.broken}). {verdict.message}")
    print(f"The audit log is intact: {verdict.num_entries} entries.")
    print(f"Newest hash: {verdict.newest_hash}")
    return 0


# -- Alerts and webhooks


def add_alerts(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    add_list(actions, ALERTS)
    test = shape.add_command(actions, "test", send_test)
    where = test.add_mutually_exclusive_group()
    where.add_argument("--webhook", metavar="ID", help="from `alerts webhooks`")
    where.add_argument("--email", metavar="ADDRESS", help="to this address")
    add_list(actions, WEBHOOKS, name="webhooks")
    add = shape.add_command(actions, "add-webhook", add_webhook)
    add.add_argument("name", metavar="NAME", help="what it is for")
    add.add_argument("url", metavar="URL", help="https://...")
    add.add_argument("--organization", metavar="NAME", help="default: the platform")
    of_webhook = ("id", "ID", "from `alerts webhooks`", "-webhook")
    RowCommands(actions, WEBHOOKS, webhook_of, *of_webhook).add_all(without=("test",))


def send_test(arguments: argparse.Namespace) -> int | str:
    """Send a test to all active webhooks, to one of them, or as an e-mail."""
    if arguments.email:
        return _test_mail(arguments.email)
    active = Webhook.objects.filter(is_active=True)
    receivers = [webhook_of(arguments.webhook)] if arguments.webhook else list(active)
    if not receivers:
        raise shape.Failure("There is no active webhook. Add one: vinery alerts add-webhook")
    test = partial(WEBHOOKS.act, EVERYTHING, WEBHOOKS.action("test"))
    errors: list[Any] = [test(webhook)["error"] for webhook in receivers]
    for webhook, error in zip(receivers, errors, strict=True):
        shape.print_line(f"{webhook}: {error or 'delivered.'}")
    if num_failed := sum(map(bool, errors)):
        raise shape.Failure(
            f"The test was not delivered to {num_failed} of {len(receivers)} webhooks."
        )
    return 0


def _test_mail(address: str) -> str:
    if not settings.VINERY_HAS_EMAIL:
        raise shape.Failure("There is no mail server. Set VINERY_EMAIL_URL.")
    text = "Alerts of quotas reach this address.\n"
    try:
        send_mail("A test of Vinery's alerts", text, settings.DEFAULT_FROM_EMAIL, [address])
    except (OSError, smtplib.SMTPException) as error:
        raise shape.Failure(f"The mail server refused the test: {error}.") from error
    return f"Sent to {address}."


def add_webhook(arguments: argparse.Namespace) -> str:
    """Add a webhook that receives alerts of an organisation's limits, or of those of the platform
    and of models. Its secret is printed once."""
    name = arguments.organization
    organization = organization_named(name) if name else None
    values = {"name": arguments.name, "url": arguments.url, "organization": organization}
    return announced(WEBHOOKS.create(EVERYTHING, values))
