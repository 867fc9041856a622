"""The health of the server in one line, and what needs attention, for the overview. Each finding
is a sentence, the address of the page of its cure and the text of the link; both are empty where no
page helps."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import F
from django.template.defaultfilters import pluralize
from django.urls import reverse

from vinery_accounts.access.access import Access, Action
from vinery_accounts.access.served import Served
from vinery_accounts.alerts.quotas import Quota
from vinery_accounts.console.records import receivers
from vinery_accounts.console.words import in_time
from vinery_accounts.models import ApiKey, KeyState, Limit, Project
from vinery_accounts.models.keys import in_state
from vinery_accounts.resources.records import QUARANTINE

Finding = tuple[str, str, str]
QuotaRow = tuple[str, str, Quota]

_SOON: Final = timedelta(days=7)
_MOST: Final = 3
_MAX_MODELS: Final = 12
_FAILED: Final = ("failed", "retrying")
# Of the checks of this process: the pages about limits have words of their own.
_checks: Final[list[Callable[[], Sequence[str]]]] = []


def provide(read: Callable[[], Sequence[str]]) -> None:
    """Let the overview show administrators what is not well in this process, as sentences."""
    _checks[:] = [read]


def health(
    access: Access, models: Sequence[Served], quotas: Sequence[QuotaRow], now: datetime
) -> dict[str, Any]:
    """Return the findings, the number of models in each state, and some models with their state.
    `quotas` are the rows of the overview."""
    own = [each for each in models if not each.is_alias]
    return {
        "findings": [
            *_of_models(access, own),
            *_of_process(access),
            *_of_quotas(quotas),
            *_of_keys(access, now),
            *_of_receivers(access),
            *_of_undecided(access),
        ],
        "num_in_state": Counter(each.state for each in own).most_common(),
        "models": own[:_MAX_MODELS],
    }


def _of_models(access: Access, models: Sequence[Served]) -> Iterator[Finding]:
    if all(each.state == "unloaded" for each in models):
        text = "No model is loaded, so no request is answered."
        yield text, reverse("console:models"), "See the models"
    for each in models:
        if each.state in _FAILED and access.is_superuser:
            text = f"The model {each.name} failed to load. {each.reason}".strip()
            name, args = ("model", [each.row_id]) if each.row_id else ("models", [])
            yield text, reverse(f"console:{name}", args=args), "Read why, and try again"
        elif each.state in _FAILED:
            yield f"The model {each.name} failed to load. An administrator sees why.", "", ""


def _of_process(access: Access) -> Iterator[Finding]:
    if number := QUARANTINE.rows(access).count():
        requests = f"{number} request{pluralize(number)} in quarantine"
        text = f"{requests}: each has ended two engines, and is refused."
        cure = (reverse("console:quarantine"), "See the quarantine")
        yield text, *(cure if access.is_leader else ("", ""))
    if access.is_superuser and _checks:
        yield from ((each, "", "") for each in _checks[0]())


def _of_quotas(quotas: Sequence[QuotaRow]) -> Iterator[Finding]:
    for owner, what, quota in quotas:
        if not quota.num_left or (quota.runs_out_at and quota.resets_at):
            text = "may be used up before it resets." if quota.num_left else "is used up."
            yield f"The quota of {what} of {owner} {text}", "#quotas", "See the quotas"


def _of_keys(access: Access, now: datetime) -> Iterator[Finding]:
    active = access.rows(ApiKey).filter(in_state(KeyState.ACTIVE, now), expires_at__lt=now + _SOON)
    # A key that was made for some hours, as the playground's, ends as it should.
    meant_to_last = active.filter(expires_at__gt=F("created_at") + _SOON)
    for key in meant_to_last.order_by("expires_at")[:_MOST]:
        assert key.expires_at is not None
        text = f"The key {key.name} expires in {in_time((key.expires_at - now).total_seconds())}."
        yield text, reverse("console:key", args=[key.pk]), "Extend or rotate it"


def _of_receivers(access: Access) -> Iterator[Finding]:
    if not (access.is_leader and access.rows(Limit).exists()):
        return
    found = receivers(access)
    if not found["people"] and not found["webhooks"]:
        where = "webhooks-new" if found["may_make_webhooks"] else "alerts"
        text = "Alerts about quotas reach nobody: there is no e-mail address and no webhook."
        yield text, reverse(f"console:{where}"), "Let somebody know"


def _of_undecided(access: Access) -> Iterator[Finding]:
    """Yield projects from before there were stored responses, until somebody decides."""
    for project in access.rows(Project).filter(response_days=None)[:_MOST]:
        if access.may(Action.CAPTURE, project):
            text = f"Clients cannot continue earlier responses in {project}: none are stored yet."
            yield text, reverse("console:projects-row", args=[project.pk]), "Decide how long"
