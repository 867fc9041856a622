"""The usage record of a request, also of one whose web process was killed, and its reservation."""

import asyncio
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.tables import table
from vinery_accounts.captures.store import MAX_TEXT_BYTES, CapturedRequest
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_accounts.limits.rulebook import Snapshot
from vinery_accounts.limits.rules import PLATFORM, Metric, Rule, Window
from vinery_accounts.limits.service import LimitService
from vinery_accounts.usage.entries import Admission, Media, Settlement, Weights, entries_in
from vinery_accounts.usage.ledger import NoRoomForUsage, UsageLedger
from vinery_serving.core.errors import InvalidRequest, LimitReached, UsageNotRecorded, cited
from vinery_serving.core.events import QUOTA, TokenCounts
from vinery_serving.core.media import MediaUsage
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.preparing.prepared import PreparedRequest
from vinery_serving.gateway.recording.record import (
    RequestRecord,
    Reservation,
    _usage,
    count_request,
)
from vinery_serving.gateway.state.drain import LiveRequests
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.gateway.state.traffic import Traffic
from vinery_serving.protocols.common.encoding import error_body


def new_record(
    ledger: Any, caller: Caller = ANONYMOUS, body: bytes = b"", **members: Any
) -> RequestRecord:
    """The record of a request in a process with this ledger and a runtime with these members."""
    runtime = SimpleNamespace(
        ledger=ledger,
        live=LiveRequests(),
        limits=LimitService(),
        directory=SimpleNamespace(entries={"m"}),
        **members,
    )
    return RequestRecord(
        cast(Runtime, runtime),
        caller,
        request_id="r1",
        endpoint="completions",
        dialect="v1",
        error_body=error_body,
        body=body,
    )


class Journal(list[Admission]):
    """In the place of a ledger. What recovery makes of it: tests/accounts/test_usage_entries.py"""

    admit = list[Admission].append


@pytest.mark.parametrize("asked", ["default", "reference-chat"])
async def test_it_is_recorded_with_the_model_that_served(asked: str) -> None:
    journal = Journal()
    record = new_record(journal)
    record.admit(model=asked)
    record.name_model("reference-chat")

    assert len(journal) == (2 if asked == "default" else 1)
    assert (journal[-1].model, journal[-1].asked_model) == ("reference-chat", asked)


async def test_pictures_are_written_before_the_answer_and_text_is_written_once() -> None:
    journal = Journal()
    record = new_record(journal)
    record.admit(model="m")
    record.note_media()
    assert len(journal) == 1

    pictures = MediaUsage(num_files=2, num_bytes=10, num_pixels=300, decode_s=0.004)
    record.meter = Meter(media=pictures, media_spans=((3, 8),), tokens=TokenCounts(9))
    record.note_media()
    assert journal[1].media == Media(
        num_files=2, num_bytes=10, num_pixels=300, spans=((3, 8),), decode_ms=4.0
    )


async def test_a_request_that_cannot_be_recorded_is_refused_and_not_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: UsageLedger, admission: Admission) -> None:
        raise NoRoomForUsage

    monkeypatch.setattr(UsageLedger, "admit", no_room)
    traffic, ledger = Traffic(), UsageLedger(tmp_path)
    record = new_record(ledger, traffic=traffic)

    with pytest.raises(UsageNotRecorded) as refused:
        record.admit(model="m")
    record.fail(refused.value)

    assert refused.value.status == 503
    assert (refused.value.retry_after_s or 0) > 0
    assert ledger.backlog_bytes == 0
    assert traffic.models["m"].requests == {("completions", 503): 1}


async def test_a_long_name_of_a_model_takes_little_space_in_the_journal() -> None:
    journal = Journal()
    new_record(journal).admit(model="m" * 1_000_000)

    assert len(journal[0].model + journal[0].asked_model) < 2000


async def test_a_refusal_is_recorded_with_its_message_and_its_field(tmp_path: Path) -> None:
    ledger = UsageLedger(tmp_path)
    record = new_record(ledger, traffic=Traffic())
    record.admit(model="m")
    record.fail(InvalidRequest(f"`stop` has {cited('a secret')}.", param="stop"))

    *_, settled = entries_in(ledger._journal.read(0, 10_000))
    assert isinstance(settled, Settlement)
    assert (settled.error_code, settled.error_param) == ("invalid_value", "stop")
    assert settled.error_message == "`stop` has …."


@table(
    "sent, hashes, stored",
    [
        ("ann", False, "ann"),
        ("a" * 99, False, "a" * 64),
        ("a\0nn", False, "ann"),
        ("", True, ""),
        ("ann", True, None),
    ],
)
async def test_a_record_has_the_end_user_or_a_hash(
    tmp_path: Path, sent: str, hashes: bool, stored: str | None
) -> None:
    def recorded(project_id: int) -> str:
        caller = structs.replace(ANONYMOUS, hashes_end_users=hashes, project_id=project_id)
        record = new_record(UsageLedger(tmp_path), caller, traffic=Traffic())
        record.admit(model="m", end_user=sent)
        assert record.reservation.end_user == record._admission.end_user
        return record._admission.end_user

    if stored is not None:
        assert recorded(1) == stored
    else:
        assert re.fullmatch("[0-9a-f]{64}", recorded(1))
        assert recorded(1) == recorded(1) != recorded(2)


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_project_with_captures_gets_the_body_and_the_answer(
    tmp_path: Path, is_refused: bool
) -> None:
    captured: list[CapturedRequest] = []
    captures = SimpleNamespace(put=captured.append)
    caller = structs.replace(ANONYMOUS, captures=True, project_id=1)
    record = new_record(UsageLedger(tmp_path), caller, b"{}", traffic=Traffic(), captures=captures)
    record.admit(model="m", is_streamed=False)
    record.name_model("m")
    if is_refused:
        record.fail(InvalidRequest("No."))
    else:
        record.add_answer(b"x" * MAX_TEXT_BYTES)
        record.add_answer(b"yz")
        record.succeed()

    [capture] = captured
    assert (capture.project_id, capture.model) == (1, "m")
    assert (capture.body, capture.num_body_bytes) == (b"{}", 2)
    refusal = error_body(InvalidRequest("No."))
    answer = (refusal, len(refusal)) if is_refused else (b"x" * MAX_TEXT_BYTES, MAX_TEXT_BYTES + 2)
    assert (capture.answer, capture.num_answer_bytes) == answer


# -- The reservation of one request: made, extended, ended and settled


NUM_PROMPT_TOKENS = 10


def rule(
    amount: int,
    *,
    is_shadow: bool = False,
    metric: Metric = Metric.TOKENS,
    window: Window = Window.DAY,
) -> Rule:
    return Rule(1, PLATFORM, metric, window, amount, is_shadow=is_shadow)


def limits_of(*rules: Rule, num_processes: int = 1) -> LimitService:
    made = LimitService(num_processes=num_processes)
    follow(made, *rules)
    return made


def follow(limits: LimitService, *rules: Rule) -> None:
    weights = {"small": Weights(uncached_milli=500, output_milli=2000)}
    limits.book.follow(Snapshot({PLATFORM: rules}, weights))


Wanted = tuple[str, TokenCounts, PreparedRequest]


def prepared(
    max_tokens: int, *, num_answers: int = 1, is_search: bool = False, num_later: int = 0
) -> Wanted:
    submit = SimpleNamespace(
        max_new_tokens=max_tokens, beams=SimpleNamespace(width=num_answers) if is_search else None
    )
    made = SimpleNamespace(
        request=SimpleNamespace(n=num_answers),
        submits=(submit,) * (1 if is_search else num_answers),
        num_later_tokens=num_later,
    )
    return "small", TokenCounts(NUM_PROMPT_TOKENS), cast(PreparedRequest, made)


def reservation_of(limits: LimitService, request_id: str = "r") -> Reservation:
    return Reservation(limits, ANONYMOUS, request_id)


async def reserved(limits: LimitService, request: Wanted | None = None) -> Reservation:
    """A request of up to 1,000 tokens that has its reservation."""
    quota = reservation_of(limits)
    await quota.reserve(*(request or prepared(1000)))
    return quota


def answered(num_tokens: int, finish_reason: str = "stop") -> Meter:
    """The meter of an answer with this many tokens."""
    tokens = TokenCounts(NUM_PROMPT_TOKENS, num_output_tokens=num_tokens)
    return Meter(tokens=tokens, finish_reason=finish_reason, has_begun=True)


async def num_used(limits: LimitService) -> int:
    (level,) = await limits.levels(list(limits.book.rules))
    return level.num_used


async def test_without_a_limit_nothing_is_counted() -> None:
    quota = await reserved(limits_of())
    assert quota.token_source is None
    assert quota.headers == []
    assert await count_request(limits_of(), ANONYMOUS, "small", "r") == []


async def test_a_summary_is_reserved_and_settled_with_the_answer_after_it() -> None:
    limits = limits_of(rule(100))
    quota = await reserved(limits, prepared(20, num_later=30))
    assert await num_used(limits) == NUM_PROMPT_TOKENS + 30 + 20
    assert quota.token_source is quota  # the answer needs more
    meter = answered(15)
    meter.begin_answer()
    meter.tokens, meter.has_begun = TokenCounts(5, num_output_tokens=4), True

    quota.settle(meter)

    assert await num_used(limits) == NUM_PROMPT_TOKENS + 15 + 5 + 4
    quota = await reserved(limits, prepared(20, num_later=30))
    meter = answered(15)
    meter.begin_answer()
    meter.tokens = TokenCounts(5)  # no engine has computed the second prompt
    quota.settle(meter)
    assert await num_used(limits) == 2 * (NUM_PROMPT_TOKENS + 15) + 5 + 4


async def test_a_limit_of_end_users_binds_each_of_them_and_no_request_without_one() -> None:
    limits = limits_of()
    each = Rule(1, "end_user:3", Metric.TOKENS, Window.DAY, 12)
    limits.book.follow(Snapshot({each.scope: (each,)}))
    caller = structs.replace(ANONYMOUS, project_id=3)

    def of(end_user: str, request_id: str) -> Reservation:
        made = Reservation(limits, caller, request_id)
        made.end_user = end_user
        return made

    for number, end_user in enumerate(("ann", "bob", "", "")):
        await of(end_user, f"r{number}").reserve("small", TokenCounts(10))
    late = of("ann", "late")
    for refused in (late.reserve("small", TokenCounts(10)), late.reserve(*prepared(5))):
        with pytest.raises(LimitReached, match="of each end user of this key's project: Limit 12"):
            await refused
    assert {bound.scope for bound in late.bound_limits} == {"end_user:3"}


async def test_the_prompt_and_the_first_tokens_are_reserved_and_can_be_extended() -> None:
    limits = limits_of(rule(10_000))
    quota = await reserved(limits)
    assert await num_used(limits) == NUM_PROMPT_TOKENS + 128
    assert (quota.num_granted, quota.is_last) == (128, False)
    await quota.extend(64)
    assert await num_used(limits) == NUM_PROMPT_TOKENS + 192
    assert (quota.num_granted, quota.is_last) == (192, False)


async def test_no_more_is_reserved_than_the_answer_may_have() -> None:
    limits = limits_of(rule(10_000))
    quota = await reserved(limits, prepared(30, num_answers=3))
    assert await num_used(limits) == NUM_PROMPT_TOKENS + 90
    assert quota.num_granted == 90
    assert quota.token_source is None  # no tokens are left to reserve


async def test_a_request_gets_the_last_tokens_as_its_last_grant() -> None:
    limits = limits_of(rule(50))
    quota = await reserved(limits)
    assert await num_used(limits) == 50
    assert (quota.num_granted, quota.is_last) == (40, True)
    # Tokens may return while the answer runs, but not after the end.
    for code, header in (
        ("rate_limit_exceeded", {"retry-after": "1", "retry-after-ms": "1000"}),
        ("insufficient_quota", {"x-should-retry": "false"}),
    ):
        with pytest.raises(LimitReached) as refused:
            await reservation_of(limits, "next").reserve(*prepared(1000))
        assert (refused.value.status, refused.value.code) == (429, code)
        assert header.items() <= refused.value.headers.items()
        quota.settle(answered(40))


@table("seed", range(2))
async def test_many_short_answers_that_come_back_use_all_of_a_quota(seed: int) -> None:
    dice = random.Random(seed)
    limits = limits_of(rule(10_000))
    most = 0

    async def ask(number: int) -> None:
        nonlocal most
        quota = reservation_of(limits, str(number))
        while True:
            try:
                await quota.reserve(*prepared(1000))
                break
            except LimitReached as refused:
                if "retry-after" not in refused.headers:
                    return
            await asyncio.sleep(0)
        most = max(most, await num_used(limits))
        for _ in range(dice.randrange(9)):
            await asyncio.sleep(0)
        quota.settle(answered(min(quota.num_granted, dice.randint(1, 30))))

    await asyncio.gather(*map(ask, range(600)))
    assert most <= 10_000
    assert 9_900 <= await num_used(limits) <= 10_000


async def test_a_bucket_refuses_a_request_instead_of_granting_its_last_tokens() -> None:
    limits = limits_of(rule(200, window=Window.MINUTE))
    await reserved(limits)
    with pytest.raises(LimitReached) as refused:
        await reservation_of(limits, "next").reserve(*prepared(1000))
    assert refused.value.code == "rate_limit_exceeded"
    # 76 tokens are missing, and 200 flow in a minute.
    assert refused.value.headers["retry-after"] == "23"


@table("num_processes", [1, 2])
async def test_a_running_answer_gets_what_its_present_limits_leave(num_processes: int) -> None:
    def amounting_to(amount: int) -> Rule:
        return rule(num_processes * amount)

    limits = limits_of(amounting_to(150), num_processes=num_processes)
    quota = await reserved(limits)

    follow(limits, amounting_to(10_000))
    await quota.extend(64)
    assert (quota.num_granted, quota.is_last) == (128 + 64, False)

    follow(limits, amounting_to(NUM_PROMPT_TOKENS + 128 + 64 + 5))
    await quota.extend(64)
    assert (quota.num_granted, quota.is_last) == (128 + 64 + 5, True)
    quota.settle(answered(0))
    assert await num_used(limits) == NUM_PROMPT_TOKENS


async def test_a_limit_that_was_removed_ends_no_answer() -> None:
    limits = limits_of(rule(150))
    quota = await reserved(limits)

    follow(limits)
    await quota.extend(64)

    assert (quota.num_granted, quota.is_last) == (128 + 64, False)
    assert quota.bound_limits == ()


async def test_a_beam_search_is_reserved_as_a_whole_or_refused() -> None:
    limits = limits_of(rule(100))
    with pytest.raises(LimitReached, match="too large"):
        await reservation_of(limits).reserve(*prepared(60, num_answers=2, is_search=True))
    assert await num_used(limits) == 0
    await reservation_of(limits).reserve(*prepared(45, num_answers=2, is_search=True))
    assert await num_used(limits) == 100


@table(
    "amount, num_extended, ending, figures",
    [
        (50, 0, answered(40, QUOTA), [(50, 88)]),
        (50, 0, answered(30), []),
        (50, 0, answered(40, "length"), []),
        (170, 64, answered(160, QUOTA), [(170, 32)]),
        (170, 64, answered(150), []),
        (1000, 64, answered(150), []),
    ],
)
async def test_an_answer_is_cut_short_only_if_the_limit_ended_it(
    amount: int, num_extended: int, ending: Meter, figures: list[tuple[float, float]]
) -> None:
    quota = await reserved(limits_of(rule(amount)))
    await quota.extend(num_extended)
    assert quota.bound_limits == ()
    quota.settle(ending)
    assert [(bound.level, bound.needed) for bound in quota.bound_limits] == figures


@table(
    "amount, window, num_tokens, figures",
    [
        (5, Window.DAY, 20, [(0, 30)]),  # would have refused it
        (50, Window.DAY, 40, []),
        (50, Window.DAY, 41, [(0, 51)]),  # would have cut it
        (170, Window.DAY, 160, []),
        (170, Window.DAY, 161, [(138, 33)]),
        (100, Window.MINUTE, 90, []),
        (100, Window.MINUTE, 91, [(0, 101)]),
    ],
)
async def test_a_shadow_limit_records_what_it_would_have_refused_or_cut(
    amount: int, window: Window, num_tokens: int, figures: list[tuple[float, float]]
) -> None:
    limits = limits_of(rule(amount, is_shadow=True, window=window))
    quota = await reserved(limits)
    await quota.extend(64)
    quota.settle(answered(num_tokens))
    assert [(bound.level, bound.needed) for bound in quota.bound_limits] == figures
    assert all(bound.is_shadow for bound in quota.bound_limits)


REFUSED = Meter(tokens=TokenCounts(NUM_PROMPT_TOKENS))


@table("meter, num_charged", [(answered(7), NUM_PROMPT_TOKENS + 7), (REFUSED, 0)])
async def test_unused_tokens_are_returned(meter: Meter, num_charged: int) -> None:
    limits = limits_of(rule(10_000))
    quota = await reserved(limits)
    for _ in range(2):
        quota.settle(meter)
    await limits.close()
    assert await num_used(limits) == num_charged


async def test_a_request_that_no_engine_runs_counts_for_rate_limits_on_requests_alone() -> None:
    rate = Rule(1, PLATFORM, Metric.REQUESTS, Window.MINUTE, 2)
    others = (
        Rule(2, PLATFORM, Metric.REQUESTS, Window.DAY, 1),
        Rule(3, PLATFORM, Metric.TOKENS, Window.MINUTE, 1),
        Rule(4, PLATFORM, Metric.CONCURRENCY, Window.NONE, 1),
    )
    limits = limits_of(rate, *others)

    for number in range(2):
        headers = dict(await count_request(limits, ANONYMOUS, "small", f"r{number}"))
        assert headers[b"x-ratelimit-remaining-requests"] == f"{1 - number}".encode()
    with pytest.raises(LimitReached, match="requests per min "):
        await count_request(limits, ANONYMOUS, "small", "third")

    assert [level.num_used for level in await limits.levels([rate, *others])] == [2, 0, 0, 0]


@table("is_search", [False, True])
async def test_a_request_holds_a_slot_for_each_of_its_answers(is_search: bool) -> None:
    limits = limits_of(rule(8, metric=Metric.CONCURRENCY, window=Window.NONE))
    reservation = reservation_of(limits)

    await reservation.reserve(*prepared(9, num_answers=5, is_search=is_search))
    with pytest.raises(LimitReached, match="concurrent answers of this server: Limit 8, Used 5"):
        await reservation_of(limits, "other").reserve(*prepared(9, num_answers=4))
    reservation.settle(Meter())

    await reservation_of(limits, "third").reserve(*prepared(9, num_answers=8))


async def test_a_budget_refuses_the_request_that_exceeds_it_and_says_so_in_money() -> None:
    """A token of a prompt costs 0.001 EUR, a token of an answer 0.000123 EUR."""
    price = Weights(uncached_milli=1_000_000, output_milli=123_000, is_price=True)
    budget = Rule(1, "project:3", Metric.COST, Window.MONTH, 50_000, currency="EUR")
    limits = LimitService(num_processes=1)
    limits.book.follow(Snapshot({budget.scope: (budget,)}, {"small": price}))
    caller = structs.replace(ANONYMOUS, project_id=3)

    for number in range(4):
        made = Reservation(limits, caller, f"r{number}")
        await made.reserve(*prepared(5))
        assert _usage(answered(2)).cost(made.weights) == 10 * 1000 + 2 * 123
        made.settle(answered(2))

    refused = Reservation(limits, caller, "refused")
    with pytest.raises(LimitReached) as caught:
        await refused.reserve(*prepared(5))
    text = str(caught.value)
    expected = "You exceeded your budget of 0.05 EUR per month of this key's project: "
    assert text.startswith(f"{expected}Used 0.040984 EUR, Requested 0.010123 EUR. It resets in ")
    assert caught.value.code == "insufficient_quota"
    assert [each.metric for each in refused.bound_limits] == ["cost"]
