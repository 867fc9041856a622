"""Headers and refusals, word for word."""

from hypothesis import given
from hypothesis import strategies as st

from tests.accounts.limits.builders import rule, slots
from tests.tables import table
from vinery_accounts.limits.reservations import Denial, Reading, denial_of
from vinery_accounts.limits.responses import duration, headers_of, refusal_of, retry_after
from vinery_accounts.limits.rules import Metric, Rule, Weekday, Window

NOON_MS = 1_800_014_400_000  # in UTC


def reading(*used: tuple[Rule, int]) -> Reading:
    """Return a reading at noon, with so much used of each rule."""
    units = [amount * rule.scale for rule, amount in used]
    return Reading(tuple(rule for rule, _ in used), units, NOON_MS)


def headers(read: Reading) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers_of(read)}


def denial(rule: Rule, used: int, needed: int, *others: tuple[Rule, int]) -> Denial:
    return denial_of(rule, used * rule.scale, needed * rule.scale, reading((rule, used), *others))


@table(
    "seconds, words",
    [
        *((0.0, "0s"), (0.0004, "0s"), (0.012, "12ms"), (0.999, "999ms"), (1.0, "1s")),
        *((1.146, "1.146s"), (1.1, "1.1s"), (59.9999999, "1m0s"), (61.05, "1m1.05s")),
        *((360.0, "6m0s"), (3600.0, "1h0m0s"), (3600.25, "1h0m0.25s"), (411_480.0, "114h18m0s")),
    ],
)
def test_durations_are_written_as_go_does(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_headers_have_limit_remaining_and_reset_of_the_rule_with_the_least_share_left() -> None:
    requests = (rule(Metric.REQUESTS, Window.MINUTE, 60), 1)
    tokens = (rule(Metric.TOKENS, Window.MINUTE, 150_000), 16)
    assert headers(reading(requests, tokens)) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-tokens": "6ms",
    }

    levels = [
        (rule(Metric.TOKENS, Window.MINUTE, 100), 50),
        (rule(Metric.TOKENS, Window.DAY, 1000), 900),
        (rule(Metric.INPUT_TOKENS, Window.MINUTE, 60), 20),
    ]
    assert headers(reading(*levels)) == {
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "100",
        "x-ratelimit-reset-tokens": "12h0m0s",
    }

    closed = (rule(Metric.REQUESTS, Window.MINUTE, 0), 0)
    open_ = (rule(Metric.REQUESTS, Window.MINUTE, 9), 1)
    assert headers(reading(open_, closed))["x-ratelimit-limit-requests"] == "0"


def test_projects_have_own_names_budgets_no_reset_and_uncounted_metrics_no_headers() -> None:
    levels = [
        (rule(Metric.TOKENS, Window.MINUTE, 100, scope="key:1"), 50),
        (rule(Metric.TOKENS, Window.MINUTE, 60_000, scope="project:7"), 3_000),
    ]
    found = headers(reading(*levels))
    assert found["x-ratelimit-limit-tokens"] == "100"
    assert found["x-ratelimit-limit-project-tokens"] == "60000"
    assert found["x-ratelimit-remaining-project-tokens"] == "57000"
    assert found["x-ratelimit-reset-project-tokens"] == "3s"

    uncounted = slots(4), rule(Metric.WEIGHTED_TOKENS), rule(Metric.TOKENS, is_shadow=True)
    assert headers(reading(*((each, 1) for each in uncounted))) == {}

    found = headers(reading((rule(Metric.TOKENS, Window.NONE, 100), 130)))
    assert found == {"x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "0"}


RATE = "Rate limit reached for tiny-chat on"
QUOTA = "You exceeded your current quota of"
# The type and the code of an error.
TOKENS, REQUESTS = ("tokens", "rate_limit_exceeded"), ("requests", "rate_limit_exceeded")
USED_UP = ("insufficient_quota", "insufficient_quota")


@table(
    "limited, used, needed, refused_as, message",
    [
        (
            rule(window=Window.MINUTE, amount=50_000),
            *(47_949, 3_006, TOKENS),
            f"{RATE} tokens per min (TPM) of this API key: Limit 50000, Used 47949, "
            "Requested 3006. Please try again in 1.146s.",
        ),
        (
            rule(Metric.REQUESTS, Window.MINUTE, 60, scope="project:7"),
            *(60, 1, REQUESTS),
            f"{RATE} requests per min (RPM) of this key's project: Limit 60, Used 60, Requested 1. "
            "Please try again in 1s.",
        ),
        (
            rule(Metric.REQUESTS, Window.DAY, 60, scope="end_user:7").of_end_user("ann@x.org"),
            *(60, 1, USED_UP),
            f"{QUOTA} requests per day (RPD) of each end user of this key's project: Limit 60, "
            "Used 60, Requested 1. It resets in 12h0m0s.",
        ),
        (
            slots(4, scope="model:m"),
            *(4, 1, REQUESTS),
            f"{RATE} concurrent answers of this model: Limit 4, Used 4, Requested 1. "
            "Please try again in 1s.",
        ),
        (
            rule(window=Window.MINUTE, amount=100),
            *(0, 101, TOKENS),
            "Request too large for tiny-chat on tokens per min (TPM) of this API key: Limit 100, "
            "Requested 101. Shorten the input or ask for fewer output tokens.",
        ),
        (
            rule(window=Window.DAY, amount=100),
            *(99, 5, USED_UP),
            f"{QUOTA} tokens per day (TPD) of this API key: Limit 100, Used 99, Requested 5. "
            "It resets in 12h0m0s.",
        ),
        (
            rule(window=Window.WEEK, week_start=Weekday.SUNDAY),
            *(99, 5, USED_UP),
            f"{QUOTA} tokens per week of this API key: Limit 100, Used 99, Requested 5. "
            "It resets in 36h0m0s.",
        ),
        (
            rule(Metric.WEIGHTED_TOKENS, Window.NONE, 100, scope="organization:1"),
            *(99, 5, USED_UP),
            f"{QUOTA} weighted tokens in total of this key's organization: Limit 100, Used 99, "
            "Requested 5. Ask an administrator to raise it.",
        ),
    ],
)
def test_a_refusal_names_what_is_left_and_what_to_do(
    limited: Rule, used: int, needed: int, refused_as: tuple[str, str], message: str
) -> None:
    refusal = refusal_of(denial(limited, used, needed), "tiny-chat")

    assert refusal.message == message
    assert (refusal.type, refusal.code) == refused_as
    may_retry = "try again" in message
    assert refusal.headers.get("x-should-retry") == (None if may_retry else "false")
    assert ("retry-after" in refusal.headers) is may_retry
    assert ("retry-after-ms" in refusal.headers) is may_retry


def test_the_headers_of_a_refusal_are_those_of_the_limit_that_refused() -> None:
    minute = rule(window=Window.MINUTE, amount=50_000)
    others = (
        (rule(Metric.REQUESTS, Window.MINUTE, 60), 3),
        (rule(window=Window.MONTH, amount=100_000), 99_000),
    )

    assert refusal_of(denial(minute, 47_949, 3_006, *others), "m").headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "57",
        "x-ratelimit-reset-requests": "3s",
        "x-ratelimit-limit-tokens": "50000",
        "x-ratelimit-remaining-tokens": "2051",
        "x-ratelimit-reset-tokens": "57.538s",
        "retry-after": "2",
        "retry-after-ms": "1146",
    }
    of_a_slot = refusal_of(denial(slots(4), 4, 1), "m").headers
    assert of_a_slot == {"retry-after": "1", "retry-after-ms": "1000"}


@given(st.floats(0.0, 1e6))
def test_no_client_is_sent_back_too_early(wait_s: float) -> None:
    headers_ = retry_after(wait_s)

    # To the microsecond: limiters look at clocks no closer than a millisecond.
    early_s = wait_s - int(headers_["retry-after-ms"]) / 1000
    assert -0.001_001 < early_s < 0.000_001
    assert int(headers_["retry-after"]) == -(-int(headers_["retry-after-ms"]) // 1000)
