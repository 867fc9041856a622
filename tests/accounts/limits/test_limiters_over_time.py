"""What time does to limits: windows begin, and buckets refill."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.accounts.limits.builders import denied, granted, request_for, rule, spend, used
from tests.fakes.clock import START_S, FakeClock
from tests.tables import table
from vinery_accounts.limits.reservations import NO_USAGE, ActualUsage, Lease, Limiter, UsageBaseline
from vinery_accounts.limits.rules import Metric, Rule, Weekday, Window
from vinery_accounts.limits.windows import window_at

MINUTE = Window.MINUTE


@pytest.mark.parametrize(("window", "num_minutes"), [(Window.MINUTE, 1), (Window.HOUR, 60)])
async def test_a_bucket_refills_in_a_line(
    limiter: Limiter, clock: FakeClock, window: Window, num_minutes: int
) -> None:
    clock.now_s = 1_800_000_000.0
    tokens = rule(window=window, amount=600)
    await granted(limiter, request_for(tokens, num_input_tokens=599))

    remaining = []
    for _ in range(4):
        (level,) = await limiter.levels([tokens])
        assert level.reset_s is not None
        remaining.append((level.num_remaining, level.reset_s / num_minutes))
        clock.pass_s(24.0 * num_minutes)

    assert remaining == [(0, 60.0), (240, 36.0), (480, 12.0), (600, 0.0)]


async def test_a_bucket_refills_and_grants_in_time(limiter: Limiter, clock: FakeClock) -> None:
    clock.now_s = 1_800_000_000.0
    tokens = rule(window=Window.HOUR, amount=60_000)
    await granted(limiter, request_for(tokens, num_input_tokens=59_999))
    num_used = []
    for seconds in (0.0, 0.059, 0.001, 0.03, 0.03, 86_400.0):
        clock.pass_s(seconds)
        num_used += await used(limiter, tokens)
    assert num_used == [60_000, 60_000, 59_999, 59_999, 59_998, 0]

    clock.now_s = START_S
    tokens = rule(window=MINUTE, amount=50_000)
    await granted(limiter, request_for(tokens, num_input_tokens=47_948))
    asked = request_for(tokens, num_input_tokens=3_005)
    denial = await denied(limiter, asked)
    assert denial.wait_s == pytest.approx(1.146)
    clock.pass_s(1.145)
    await denied(limiter, asked)
    clock.pass_s(0.001)
    await granted(limiter, asked)


async def test_a_day_begins_at_its_own_midnight(limiter: Limiter, clock: FakeClock) -> None:
    # 18:30 in India, of an offset of five hours and a half.
    clock.now_s = datetime(2027, 3, 10, 13, 0, tzinfo=UTC).timestamp()
    tokens = rule(amount=100, time_zone="Asia/Kolkata")
    await spend(limiter, 100, tokens)
    denial = await denied(limiter, request_for(tokens))
    assert denial.wait_s == 5.5 * 3600
    assert denial.is_quota
    clock.pass_s(5.5 * 3600 - 0.001)
    await denied(limiter, request_for(tokens))
    clock.pass_s(0.002)
    await granted(limiter, request_for(tokens))

    budget = rule(Metric.WEIGHTED_TOKENS, Window.NONE, 100)
    await spend(limiter, 100, budget)
    clock.pass_s(400 * 86_400)
    denial = await denied(limiter, request_for(budget))
    assert (denial.wait_s, denial.is_quota, denial.level.reset_s) == (None, True, None)


@table(
    "week_start, begins_at",
    [
        # A Saturday noon before clocks change in Berlin, forwards and then back.
        (Weekday.MONDAY, "2027-03-29T00:00+02:00"),
        (Weekday.SUNDAY, "2027-03-28T00:00+01:00"),
        (Weekday.SATURDAY, "2027-04-03T00:00+02:00"),
        (Weekday.MONDAY, "2027-11-01T00:00+01:00"),
        (Weekday.SUNDAY, "2027-10-31T00:00+02:00"),
        (Weekday.SATURDAY, "2027-11-06T00:00+01:00"),
    ],
)
async def test_a_week_starts_anew_with_its_first_day_whatever_clocks_do_in_it(
    limiter: Limiter, clock: FakeClock, week_start: Weekday, begins_at: str
) -> None:
    begins_s = datetime.fromisoformat(begins_at).timestamp()
    noon = datetime(2027, 3, 27, 11, tzinfo=UTC), datetime(2027, 10, 30, 10, tzinfo=UTC)
    clock.now_s = max(each.timestamp() for each in noon if each.timestamp() < begins_s)
    tokens = rule(window=Window.WEEK, amount=100, time_zone="Europe/Berlin", week_start=week_start)
    await spend(limiter, 100, tokens)

    denial = await denied(limiter, request_for(tokens))
    assert denial.is_quota
    assert denial.wait_s == begins_s - clock.now_s
    clock.now_s = begins_s - 0.001
    await denied(limiter, request_for(tokens))
    clock.now_s = begins_s
    await granted(limiter, request_for(tokens, num_input_tokens=99))


async def test_weeks_of_other_first_days_count_apart(limiter: Limiter, clock: FakeClock) -> None:
    by_monday = rule(window=Window.WEEK, amount=100)
    by_sunday = replace(by_monday, week_start=Weekday.SUNDAY)

    await granted(limiter, request_for(by_monday, num_input_tokens=29))
    await granted(limiter, request_for(by_sunday, num_input_tokens=9))
    assert await used(limiter, by_monday, by_sunday) == [30, 10]

    # A baseline of the week that began on a Sunday, two days before, has no effect on the other.
    sunday_ms, _ = window_at(by_sunday, int(clock() * 1000))
    monday_ms, _ = window_at(by_monday, int(clock() * 1000))
    assert monday_ms - sunday_ms == 86_400_000
    weeks = by_monday, by_sunday
    await limiter.restore([UsageBaseline(each, 70, since_ms=sunday_ms) for each in weeks])
    assert await used(limiter, *weeks) == [30, 70]


async def test_each_token_counts_in_its_own_window(limiter: Limiter, clock: FakeClock) -> None:
    tokens = at_midnight(clock)
    late = await granted(limiter, request_for(tokens, num_input_tokens=60))
    too_expensive = await granted(limiter, request_for(tokens, num_input_tokens=10))
    clock.pass_s(2.0)
    await granted(limiter, request_for(tokens, num_input_tokens=29))
    await limiter.settle(late, NO_USAGE)
    await limiter.settle(too_expensive, ActualUsage(50))
    assert await used(limiter, tokens) == [30]

    tokens = at_midnight(clock)
    lease = await granted(limiter, request_for(tokens, num_input_tokens=60))
    clock.pass_s(2.0)
    await limiter.extend(lease, 40)
    assert await used(limiter, tokens) == [40]
    # Of the 40 granted, 10 were generated: the last grants are the unused ones.
    await limiter.settle(lease, ActualUsage(num_prompt_tokens=60, num_output_tokens=11))
    assert await used(limiter, tokens) == [10]

    tokens = at_midnight(clock)
    lease = await granted(limiter, request_for(tokens, num_input_tokens=60))
    clock.pass_s(2.0)
    await granted(limiter, request_for(tokens, num_input_tokens=29))
    await limiter.extend(lease, 10)
    await limiter.settle(lease, ActualUsage(num_prompt_tokens=20))
    assert await used(limiter, tokens) == [30]


@pytest.mark.parametrize(("window", "num_minutes"), [(Window.MINUTE, 1), (Window.HOUR, 60)])
async def test_a_clock_that_is_set_back_refills_nothing(
    limiter: Limiter, clock: FakeClock, window: Window, num_minutes: int
) -> None:
    rules = rule(window=window, amount=600), rule(amount=1000)
    await granted(limiter, request_for(*rules, num_input_tokens=299))

    clock.pass_s(-86_400.0)
    assert await used(limiter, *rules) == [300, 300]
    await granted(limiter, request_for(*rules, num_input_tokens=99))

    # What had refilled while the clock was ahead counts once, which takes one period at most.
    clock.pass_s(60.0 * num_minutes)
    assert await used(limiter, *rules) == [400, 400]
    clock.pass_s(10.0 * num_minutes)
    assert await used(limiter, *rules) == [300, 400]
    clock.pass_s(86_400.0 - 70.0 * num_minutes)
    assert await used(limiter, *rules) == [0, 400]


async def test_a_clock_back_and_forth_refills_nothing(limiter: Limiter, clock: FakeClock) -> None:
    bucket = rule(window=MINUTE, amount=600)
    lease = await granted(limiter, request_for(bucket, num_input_tokens=498))

    for seconds in (-60.0, 60.0, -30.0, 30.0):
        clock.pass_s(seconds)
        await granted(limiter, request_for(bucket))
        await limiter.extend(lease, 1)

    assert await used(limiter, bucket) == [507]
    clock.pass_s(10.0)
    assert await used(limiter, bucket) == [407]


def at_midnight(clock: FakeClock) -> Rule:
    """A new limit of a day, when its last second begins, in UTC."""
    _, midnight_ms = window_at(day := rule(amount=100), int(clock() * 1000))
    clock.now_s = midnight_ms / 1000 - 1
    return day


async def run_on(limiter: Limiter, clock: FakeClock, seconds: float, *leases: Lease) -> None:
    """Time passes, and the leases are renewed meanwhile."""
    for _ in range(10):
        clock.pass_s(seconds / 10)
        await limiter.renew(leases)


async def test_a_bucket_gets_back_only_what_is_there(limiter: Limiter, clock: FakeClock) -> None:
    tokens = rule(window=MINUTE, amount=1000)
    idle = await granted(limiter, request_for(tokens, num_output_tokens=500))
    await run_on(limiter, clock, 60.0, idle)
    busy = await granted(limiter, request_for(tokens, num_input_tokens=999))
    await limiter.settle(busy, ActualUsage(999, 1))
    await limiter.settle(idle, NO_USAGE)
    assert await used(limiter, tokens) == [1000]

    tokens = rule(window=MINUTE, amount=1000)
    idle = await granted(limiter, request_for(tokens, num_output_tokens=500))
    clock.pass_s(12.0)
    await granted(limiter, request_for(tokens, num_input_tokens=699))
    await limiter.settle(idle, NO_USAGE)
    assert await used(limiter, tokens) == [700]

    tokens = rule(window=MINUTE, amount=1000)
    both = [await granted(limiter, request_for(tokens, num_output_tokens=300)) for _ in range(2)]
    await run_on(limiter, clock, 30.0, *both)
    await granted(limiter, request_for(tokens, num_input_tokens=899))
    assert await used(limiter, tokens) == [1000]
    for lease in both:
        await limiter.settle(lease, NO_USAGE)
    assert await used(limiter, tokens) == [900]

    tokens = rule(window=MINUTE, amount=100_000)
    asked = [request_for(tokens, num_output_tokens=128) for _ in range(200)]
    for lease in [await granted(limiter, each) for each in asked]:
        await limiter.extend(lease, 64)
        await limiter.settle(lease, ActualUsage(num_output_tokens=100))
    assert await used(limiter, tokens) == [200 * 100]


@table(
    "num_used_at_end, num_used",
    # The last extension is there yet, and what was granted a minute before is not.
    [(160, 460), (100, 400), (60, 400), (0, 400)],
)
async def test_what_was_granted_last_is_what_a_bucket_gets_back(
    limiter: Limiter, clock: FakeClock, num_used_at_end: int, num_used: int
) -> None:
    tokens = rule(window=MINUTE, amount=1000)
    lease = await granted(limiter, request_for(tokens, num_output_tokens=50))
    for _ in range(5):
        await limiter.extend(lease, 10)
    await run_on(limiter, clock, 60.0, lease)
    await granted(limiter, request_for(tokens, num_input_tokens=399))
    await limiter.extend(lease, 100)

    await limiter.settle(lease, ActualUsage(num_output_tokens=num_used_at_end))

    assert await used(limiter, tokens) == [num_used]
