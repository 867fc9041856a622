"""Which models load and which make room, for any sizes, uses and requests."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.node.planner import ModelUse, Phase, Plan, Rules, make_plan

RULES = Rules({"CPU": 30}, min_awake_s=5)
NOW_S = 1000.0


def asleep(id_: int, need_bytes: int = 10, **changes: object) -> ModelUse:
    return replace(ModelUse(id_, "CPU", need_bytes, Phase.ASLEEP), **changes)


def waiting(id_: int, since_s: float = 990.0, need_bytes: int = 10) -> ModelUse:
    return asleep(id_, need_bytes, waiting_since_s=since_s)


def awake(id_: int, idle_since_s: float | None = 900.0, **changes: object) -> ModelUse:
    use = ModelUse(id_, "CPU", 10, Phase.AWAKE, awake_since_s=800.0 + id_)
    return replace(use, idle_since_s=idle_since_s, **changes)


def plan(*models: ModelUse, now_s: float = NOW_S) -> Plan:
    return make_plan(models, RULES, now_s)


def test_as_many_models_load_at_the_start_as_fit() -> None:
    found = plan(*(asleep(id_, is_eager=True) for id_ in range(1, 6)))

    assert (found.wake, found.sleep) == ([1, 2, 3], [])


def test_no_model_sleeps_for_one_without_a_request() -> None:
    found = plan(awake(1), awake(2), awake(3), asleep(4, is_eager=True))

    assert found == Plan()


def test_the_least_recently_used_model_makes_room_for_one_that_requests_wait_for() -> None:
    found = plan(awake(1, 903), awake(2, 901), awake(3, 902), waiting(4))

    assert (found.wake, found.sleep) == ([], [2])


def test_a_model_loads_when_the_one_that_makes_room_has_ended() -> None:
    models = [awake(1), replace(awake(2), phase=Phase.LEAVING), awake(3), waiting(4)]
    assert plan(*models) == Plan()

    models[1] = asleep(2)
    assert plan(*models).wake == [4]


def test_idle_models_make_room_before_busy_ones_and_busy_ones_by_when_they_woke() -> None:
    busy = [awake(1, None), awake(2, None)]

    assert plan(*busy, awake(3, 999), waiting(4)).sleep == [3]
    assert plan(*busy, awake(3, None), waiting(4)).sleep == [1]


def test_a_pinned_model_is_awake_before_others_and_never_makes_room() -> None:
    pinned = [awake(1, is_pinned=True), asleep(2, is_pinned=True)]

    found = plan(*pinned, awake(3), awake(4), waiting(5, 0.0))

    assert found.sleep == [3, 4]
    assert plan(*pinned, awake(3)).wake == [2]


def test_a_model_that_has_just_woken_or_that_requests_wait_for_makes_no_room() -> None:
    young = awake(1, awake_since_s=NOW_S - 2)
    found = plan(young, awake(2, waiting_since_s=999), awake(3, is_pinned=True), waiting(4))

    assert (found.sleep, found.next_at_s) == ([], NOW_S + 3)
    later = plan(young, awake(2, waiting_since_s=999), waiting(4), asleep(5, 10), now_s=NOW_S + 3)
    assert (later.sleep, later.wake) == ([], [4])


def test_requests_are_served_in_the_order_in_which_they_came() -> None:
    found = plan(awake(1), awake(2), waiting(5, 980), waiting(3, 970), waiting(4, 990))

    assert (found.wake, found.sleep) == ([3], [1, 2])


def test_no_smaller_model_passes_the_one_that_is_next() -> None:
    young = awake(1, awake_since_s=NOW_S - 2)
    large, small = waiting(2, 980, need_bytes=25), waiting(3, 990, need_bytes=5)

    assert plan(young, large, small) == Plan(next_at_s=NOW_S + 3)
    # What the large one leaves over is free for others.
    leaving = replace(young, phase=Phase.LEAVING)
    assert plan(leaving, large, small).wake == [3]


def test_a_model_sleeps_after_its_idle_time() -> None:
    idle = awake(1, 900, idle_limit_s=100)

    assert plan(idle).sleep == [1]
    assert plan(replace(idle, idle_limit_s=101)) == Plan(next_at_s=1001)
    assert plan(replace(idle, idle_since_s=None)) == Plan()
    assert plan(replace(idle, is_pinned=True)) == Plan()
    assert plan(replace(idle, waiting_since_s=999)) == Plan()


def test_a_model_that_can_never_fit_is_named_and_holds_up_no_other() -> None:
    found = plan(waiting(1, 900, need_bytes=31), waiting(2, 950))

    assert (found.unfit, found.wake) == ({1}, [2])
    beside_pinned = plan(awake(1, is_pinned=True), waiting(2, need_bytes=21), waiting(3, 995))
    assert (beside_pinned.unfit, beside_pinned.wake) == ({2}, [3])


def test_of_two_pinned_models_that_exclude_each_other_the_first_one_fits() -> None:
    found = plan(asleep(1, 20, is_pinned=True), asleep(2, 20, is_pinned=True))

    assert (found.wake, found.unfit) == ([1], {2})


def test_models_that_have_grown_above_the_budget_make_room_until_one_is_left() -> None:
    assert plan(awake(1, 903), awake(2, 901, need_bytes=25)).sleep == [2]
    assert plan(awake(1, need_bytes=40)) == Plan()


def former(id_: int, need_bytes: int = 10) -> ModelUse:
    return replace(awake(id_, None), need_bytes=need_bytes, is_former=True)


def test_others_make_room_for_a_new_version_and_not_the_one_that_it_replaces() -> None:
    new = replace(waiting(9), replaces=1)

    assert plan(former(1), awake(2), new).wake == [9]
    assert plan(former(1), awake(2), awake(3), new).sleep == [2]


def test_a_version_makes_room_for_the_next_one_if_both_never_fit() -> None:
    found = plan(former(1, 16), awake(2), replace(waiting(9, need_bytes=15), replaces=1))

    assert found.sleep == [1]
    assert plan(former(1, 16), replace(waiting(9, need_bytes=14), replaces=1)).wake == [9]


def test_a_version_that_is_replaced_makes_room_for_no_other_model() -> None:
    assert plan(former(1, 25), waiting(2)) == Plan()


def test_devices_have_budgets_of_their_own_and_one_without_has_no_limit() -> None:
    on_gpu = [replace(waiting(id_), device="GPU") for id_ in range(5, 15)]

    found = plan(awake(1), awake(2), awake(3), *on_gpu)

    assert (found.wake, found.sleep) == (list(range(5, 15)), [])


uses = st.builds(
    ModelUse,
    id=st.integers(0, 10**6),
    device=st.sampled_from(["CPU", "GPU"]),
    need_bytes=st.integers(1, 40),
    phase=st.sampled_from(list(Phase)),
    is_pinned=st.booleans(),
    is_eager=st.booleans(),
    waiting_since_s=st.none() | st.floats(900, 1000),
    awake_since_s=st.floats(900, 1000),
    idle_since_s=st.none() | st.floats(900, 1000),
    idle_limit_s=st.none() | st.floats(1, 200),
)
machines = st.lists(uses, max_size=12, unique_by=lambda use: use.id)


@given(machines)
def test_what_loads_fits_beside_all_that_holds_memory(models: list[ModelUse]) -> None:
    found = plan(*models)
    held = [each for each in models if each.device == "CPU" and each.holds_memory]
    woken = [each for each in models if each.device == "CPU" and each.id in found.wake]

    assert all(each.phase is Phase.ASLEEP for each in models if each.id in found.wake)
    assert not woken or sum(each.need_bytes for each in held + woken) <= 30


@given(machines)
def test_nothing_that_must_stay_makes_room(models: list[ModelUse]) -> None:
    found = plan(*models)
    for each in models:
        if each.id in found.sleep:
            assert each.phase is Phase.AWAKE
            assert not each.is_pinned
            assert each.waiting_since_s is None
    assert len(found.sleep) == len(set(found.sleep))


@given(machines)
def test_no_model_makes_room_while_one_that_was_used_less_recently_may(
    models: list[ModelUse],
) -> None:
    found = plan(*(replace(each, idle_limit_s=None, device="CPU") for each in models))

    def key(use: ModelUse) -> tuple[bool, float, int]:
        busy = use.idle_since_s is None
        return busy, use.awake_since_s if use.idle_since_s is None else use.idle_since_s, use.id

    may = [
        each
        for each in models
        if each.phase is Phase.AWAKE
        and not each.is_pinned
        and each.waiting_since_s is None
        and each.awake_since_s <= NOW_S - 5
    ]
    ordered = [each.id for each in sorted(may, key=key)]
    assert found.sleep == ordered[: len(found.sleep)]


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.booleans(), st.floats(0, 900)), min_size=1, max_size=10
    )
)
def test_each_model_that_requests_wait_for_gets_its_turn(
    wanted: list[tuple[int, bool, float]],
) -> None:
    """Engines load and end at once; a model that woke has served its requests after 5 s."""
    models = {
        id_: waiting(id_, since_s, need) if has_requests else asleep(id_, need)
        for id_, (need, has_requests, since_s) in enumerate(wanted)
    }
    now_s, served = NOW_S, set[int]()
    for _ in range(4 * len(models)):
        found = make_plan(models.values(), RULES, now_s)
        for id_ in found.sleep:
            models[id_] = replace(models[id_], phase=Phase.ASLEEP)
        for id_ in found.wake:
            served.add(id_)
            models[id_] = replace(
                models[id_],
                phase=Phase.AWAKE,
                awake_since_s=now_s,
                waiting_since_s=None,
            )
        now_s += 5
    assert served == {id_ for id_, (_, has_requests, _) in enumerate(wanted) if has_requests}
