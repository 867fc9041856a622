"""The first page: what needs attention, figures over time, and quotas that run out. The first page
of the own account."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import F, Q, QuerySet
from django.template.defaultfilters import filesizeformat, pluralize
from django.urls import reverse
from django.utils import timezone
from msgspec import structs

from vinery_accounts.access.access import Access, Action
from vinery_accounts.access.served import Served, visible_models
from vinery_accounts.alerts.quotas import Quota, read_quotas
from vinery_accounts.base.errors import Outcome
from vinery_accounts.base.money import short_money
from vinery_accounts.console import words
from vinery_accounts.console.charts import Chart, Series, duration, short
from vinery_accounts.console.keys import projects_for
from vinery_accounts.console.limits import limit_rows, may_set_limits, quota_rows
from vinery_accounts.console.page import LivePage, Page, UsagePage, at, before
from vinery_accounts.console.records import receivers
from vinery_accounts.console.words import in_time
from vinery_accounts.models import (
    ApiKey,
    Currency,
    KeyState,
    Limit,
    LimitScope,
    Project,
    UsageSlice,
    User,
)
from vinery_accounts.models.keys import in_state
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.resources.organizations import INVITATIONS
from vinery_accounts.resources.records import QUARANTINE
from vinery_accounts.usage import reports
from vinery_accounts.usage.filters import Conditions, Dimension, restriction
from vinery_accounts.usage.histogram import Percentiles
from vinery_accounts.usage.periods import calendar_month
from vinery_accounts.usage.reports import Figures, Point

Parts = Mapping[str, Callable[[Figures], float | None]]


def _percentiles(column: str) -> Parts:
    def percentile(name: str) -> Callable[[Figures], float | None]:
        return lambda figures: getattr(getattr(figures, column), name, None)

    return {name: percentile(name) for name in ("p50", "p95", "p99")}


# The name of each chart, its text for screen readers, and the value of each colour.
_CHARTS: Final[tuple[tuple[str, str, Parts], ...]] = (
    (
        "Requests",
        "Requests that were answered, refused or failed, over time.",
        {
            "answered": lambda each: each.num_requests - each.num_errors,
            "refused by limits": lambda each: each.num_limited,
            "client errors": lambda each: each.num_client_errors,
            "failed": lambda each: each.num_server_errors,
        },
    ),
    (
        "Tokens",
        "Input tokens, cached or not, and output tokens over time.",
        {
            "input": lambda each: each.num_prompt_tokens - each.num_cached_tokens,
            "cached input": lambda each: each.num_cached_tokens,
            "output": lambda each: each.num_output_tokens,
        },
    ),
    (
        "Time to first token",
        "Percentiles of the time to the first token of a response.",
        _percentiles("first_token_ms"),
    ),
    (
        "Latency of answers",
        "Percentiles of the time until an answer was complete.",
        _percentiles("total_ms"),
    ),
)
_MAX_KEYS: Final = 50
_COLOURS: Final = {"refused by limits": "refused", "client errors": "4", "failed": "failed"}


@at("", "overview")
class Overview(LivePage, UsagePage):
    """All but the charts stays up to date."""

    has_charts = True
    throttle = " throttle:5s"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        question, now, is_leader = self.question, timezone.now(), self.access.is_leader
        figures, points = reports.whole_and_series(question)
        is_drawn = figures.num_requests and not self.is_refresh
        whole_before = reports.totals(before(question), with_latencies=False).figures
        quotas = quota_rows(self.access, read_quotas(self.access.quotas_seen(), now))
        models = visible_models(self.access)
        is_answered = is_leader and figures.num_requests > figures.num_errors
        has_answers = is_answered or self._has_answers()
        return super().get_context_data(**kwargs) | {
            "tiles": tiles(figures, whole_before, Currency.current() if is_leader else ""),
            "charts": list(self._charts(points)) if is_drawn else (),
            "quotas": quotas,
            "health": health(self.access, models, quotas, now),
            "invitations": INVITATIONS.rows(self.access).filter(username=self.user.username),
            "is_empty": not figures.num_requests,
            "steps": {} if has_answers else self._steps(models),
        }

    def _has_answers(self) -> bool:
        """Whether a request of the person was ever answered; of those who lead, any request that
        they may see. Slices are never deleted."""
        own: Conditions = {Dimension.USER: frozenset({self.user.pk})}
        seen = restriction({} if self.access.is_leader else own, self.access.visible())
        return UsageSlice.objects.filter(seen, outcome=Outcome.OK).exists()

    def _steps(self, models: Sequence[Served]) -> dict[str, bool]:
        """Return the first steps that the person may do, and whether each is done."""
        access, steps = self.access, {}
        if access.is_superuser:
            steps["model"] = any(each.answers_chats for each in models)
        if projects_for(access, self.user).exists():
            is_active = in_state(KeyState.ACTIVE, timezone.now())
            has_key = ApiKey.objects.filter(is_active, owner=self.user).exists()
            steps |= {"key": has_key, "answer": False}
        if may_set_limits(access):
            steps["limit"] = access.rows(Limit).exists()
        return steps

    def _charts(self, points: Sequence[Point]) -> Iterator[Chart]:
        earlier = reports.series(before(self.question)) if self.compares else ()
        for name, what, parts in _CHARTS:
            series = [
                Series(part, [value(point.figures) for point in points], _COLOURS.get(part, ""))
                for part, value in parts.items()
            ]
            is_of_durations = "p50" in parts
            compared = [parts["p50"]] if is_of_durations else list(parts.values())
            sums = [[value(each.figures) for value in compared] for each in earlier]
            values = [None if None in each else sum(filter(None, each)) for each in sums]
            about = {"is_of_durations": is_of_durations, "earlier": values}
            yield self.chart(name, what, points, series, **about)


def tiles(figures: Figures, earlier: Figures, currency: str = "") -> list[tuple[str, ...]]:
    """Return the totals of a period: an id for tests and the style sheet, a name, a number,
    details, and the exact number. `earlier` is the period before. A currency adds the cost."""
    num_refused, num_errors = figures.num_limited, figures.num_errors - figures.num_limited
    of_errors = words.causes(structs.replace(figures, num_limited=0, num_cut_short=0))
    of_limits = words.causes(structs.replace(Figures(), num_cut_short=figures.num_cut_short))
    cached = f"{words.count(figures.num_cached_tokens)} cached"
    requests = words.change(figures.num_requests, earlier.num_requests)
    output = words.change(figures.num_output_tokens, earlier.num_output_tokens)
    limits = _share(num_refused, figures, of_limits)
    found = [
        _counted("requests", "Requests", figures.num_requests, requests),
        _counted("errors", "Errors", num_errors, _share(num_errors, figures, of_errors)),
        _counted("refused", "Refused by limits", num_refused, limits),
        _counted("input", "Input tokens", figures.num_prompt_tokens, cached),
        _counted("output", "Output tokens", figures.num_output_tokens, output),
    ]
    if figures.num_media:
        size, num_tokens = filesizeformat(figures.num_media_bytes), figures.num_media_tokens
        pixels = words.pixels(figures.num_media_pixels)
        media = f"{words.count(num_tokens)} input tokens, {size}, {pixels}"
        found.append(_counted("media", "Media", figures.num_media, media))
    if currency:
        cost = short_money(figures.cost, currency), words.change(figures.cost, earlier.cost)
        found.append(("cost", "Cost", *cost, ""))
    return [
        *found,
        ("first-token", "Time to first token (p50)", *_latency(figures.first_token_ms), ""),
        ("total", "Latency of answers (p50)", *_latency(figures.total_ms), ""),
        ("speed", "Tokens/s of an answer (p50)", *_speed(figures.inter_token_ms), ""),
    ]


def _counted(id_: str, name: str, num: int, more: str) -> tuple[str, ...]:
    return id_, name, words.count(num), more, f"{num:,}"


def _share(num: int, figures: Figures, more: str) -> str:
    share = f"{100 * num / figures.num_requests:.3g} % of requests" if figures.num_requests else ""
    return ": ".join(filter(None, (share, more)))


def _latency(found: Percentiles | None) -> tuple[str, str]:
    if found is None:
        return "-", "not measured"
    return duration(found.p50), f"p95 {duration(found.p95)} · p99 {duration(found.p99)}"


def _speed(between: Percentiles | None) -> tuple[str, str]:
    """Return the tokens in a second of one answer, from the times between its tokens."""
    if between is None or not between.p50:
        return "-", "not measured"
    slow = f"one in twenty is below {short(1000 / between.p95)}" if between.p95 else ""
    return short(1000 / between.p50), slow


@at("account/", "account")
class Account(Page):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        now, user = timezone.now(), frozenset({self.user.pk})
        mine = KEYS.rows(self.access).filter(owner=self.user, revoked_at=None)
        since, until = calendar_month(now.astimezone(UTC), is_last=False)
        about: Any = {"filters": {Dimension.USER: user}, "visible": self.access.visible()}
        question = reports.Question(since=since, until=until, **about)
        earlier = reports.totals(before(question)).figures
        return super().get_context_data(**kwargs) | {
            "keys": [(key, key.state_at(now)) for key in mine.order_by("-pk")[:_MAX_KEYS]],
            "tiles": tiles(reports.totals(question).figures, earlier),
            **limit_rows(self.access, self.access.rows(Limit).filter(_binds(self.user, mine))),
        }


def _binds(user: User, keys: QuerySet[ApiKey]) -> Q:
    """Return the condition on limits that a request of the user must fit."""
    found = Q(scope__in=(LimitScope.PLATFORM, LimitScope.MODEL))
    found |= Q(scope=LimitScope.USER, scope_id=user.pk)
    owners = {"key": "pk", "project": "project", "organization": "project__organization"}
    for scope, column in owners.items():
        found |= Q(scope=scope, scope_id__in=keys.values(column))
    return found


# -- What needs attention

# A sentence, the address of the page of its cure and the text of the link; both are empty where no
# page helps.
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
