"""Short texts for limits and times, and a sentence for each refusal. Pure."""

import math
from typing import Any, Final

from vinery_accounts.base.errors import QUOTA_EXCEEDED, Outcome
from vinery_accounts.base.money import limited, quantity
from vinery_accounts.console.charts import short
from vinery_accounts.limits.reservations import Level
from vinery_accounts.limits.rules import Kind, Rule, Window
from vinery_accounts.limits.service import StoreState, UnavailablePolicy
from vinery_accounts.models import RefusedRequest, UsageRecord
from vinery_accounts.usage.filters import Effect
from vinery_accounts.usage.reports import Figures

_MEANWHILE: Final = {
    UnavailablePolicy.ALLOW: "Requests run without limits until it is back, and are counted then.",
    UnavailablePolicy.REFUSE: "Requests are refused until it is back.",
}

_ENDINGS: Final = {
    Outcome.OK: ("ok", "answered", "The request was answered."),
    Outcome.CLIENT_GONE: ("asleep", "client left", "The client left before the end of the answer."),
    Outcome.REJECTED: ("", "refused", "The server refused the request."),
    Outcome.FAILED: ("failed", "failed", "The server could not finish the request."),
    Outcome.INTERRUPTED: ("failed", "interrupted", "The server's process ended meanwhile."),
}
_FINISHES: Final = {
    "stop": "The model ended its answer.",
    "length": "The answer reached its largest number of tokens, so it may be cut.",
    "tool_calls": "The model called a tool.",
    QUOTA_EXCEEDED: "A limit cut the answer short.",
}


def in_time(seconds: float) -> str:
    """Return a time to wait, rounded up: 12 s, 5 min, 3 h 20 min, 4 days."""
    whole_s = math.ceil(seconds)
    if whole_s <= 99:
        return f"{whole_s} s"
    minutes = math.ceil(whole_s / 60)
    if minutes <= 99:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{math.ceil(whole_s / 86_400)} days"


def count(number: int) -> str:
    """Return a number that fits into a tile: 15,828 and 15.8M."""
    return f"{number:,}" if number < 100_000 else short(number)


def change(now: float, earlier: float) -> str:
    if now >= 20 * earlier:  # a platform's first days say nothing
        return ""
    return f"{100 * (now - earlier) / earlier:+,.0f} % vs previous period"


def causes(figures: Figures) -> str:
    """Return the errors by cause, and cut answers: 3 by limits, 1 of the server."""
    parts = {
        "by limits": figures.num_limited,
        "of clients": figures.num_client_errors,
        "of the server": figures.num_server_errors,
        "cut short": figures.num_cut_short,
    }
    return ", ".join(f"{count(number)} {cause}" for cause, number in parts.items() if number)


def pixels(number: int) -> str:
    """Return a number of pixels: 12,544 pixels, 3.1 megapixels."""
    return f"{number:,} pixels" if number < 1_000_000 else f"{number / 1e6:,.1f}\u00a0megapixels"


def reset(rule: Rule, level: Level | None) -> str:
    match rule.kind:
        case Kind.CONCURRENCY:
            return "as soon as a request ends"
        case Kind.TOTAL:
            return "never: an administrator can raise it"
        case Kind.BUCKET:
            if level is None or not level.reset_s:
                return "refills continuously"
            return f"refills continuously, full in {in_time(level.reset_s)}"
    if level is None or level.reset_s is None:
        return f"with the next {rule.window}"
    begins = f"{rule.week_start.capitalize()} " if rule.window is Window.WEEK else ""
    return f"in {in_time(level.reset_s)} ({begins}00:00 {rule.time_zone})"


def store_outage(state: StoreState | None, now_s: float) -> str:
    """Return the effect of an outage of the limit store. `now_s` is Unix time. Empty while the
    store answers, or without a store."""
    if state is None or state.unavailable_since_s is None:
        return ""
    since = in_time(max(1.0, now_s - state.unavailable_since_s))
    return f"The store of the limits has not answered for {since}. {_MEANWHILE[state.policy]}"


def reason(row: Any, owner: str, currency: str = "") -> str:
    """Return why a limit refused a request, would have refused it, or cut the answer short. `row`
    is a `RefusedRequest` with its effect, `owner` a phrase for the owner of the limit."""
    limit = limited(row.metric, row.window, row.amount, currency)
    used = f"{quantity(row.metric, math.ceil(row.level), currency)} of {limit} of {owner} were used"
    more = quantity(row.metric, math.ceil(row.needed), currency)
    needed = f"{more} more {'was' if row.needed == 1 else 'were'} needed"
    match row.effect:
        case Effect.SHADOW:
            return f"Not blocked, the limit only monitors: {used}, and {needed}."
        case Effect.CUT_SHORT:
            return f"Response cut short at the limit: {used}."
    return f"{used}, and {needed}. {_advice(row)}"


def ending(row: UsageRecord) -> tuple[str, str, str]:
    """Return how a request ended: a class of the style sheet, short words, and a sentence."""
    kind, short_words, sentence = _ENDINGS[Outcome(row.outcome)]
    if row.finish_reason == QUOTA_EXCEEDED:
        kind, short_words = "", "cut by a limit"
    if row.error_code in ("rate_limit_exceeded", "insufficient_quota"):
        short_words = "refused by a limit"
    return kind, short_words, _FINISHES.get(row.finish_reason, sentence)


def _advice(row: RefusedRequest) -> str:
    if row.wait_s is None:
        if row.needed > row.amount > 0:
            return "It never fits: send a shorter request, or ask for a larger limit."
        return "Waiting does not help: an administrator can raise the limit."
    return f"It would have been allowed {in_time(row.wait_s)} later."
