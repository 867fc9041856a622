"""Which models load and which make room, for any sizes, uses and requests."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.node.planner import ModelUse, Phase, Plan, make_plan

RULES = {"CPU": 30}, 5  # bytes of each device, and how long a model stays awake
NOW_S = 1000.0


def asleep(id_: int, need_bytes: int = 10, **changes: object) -> ModelUse:
    return replace(ModelUse(id_, "CPU", need_bytes, Phase.ASLEEP), **changes)


def waiting(id_: int, since_s: float = 990.0, need_bytes: int = 10) -> ModelUse:
    return asleep(id_, need_bytes, waiting_since_s=since_s)


def awake(id_: int, idle_since_s: float | None = 900.0, **changes: object) -> ModelUse:
    use = ModelUse(id_, "CPU", 10, Phase.AWAKE, awake_since_s=800.0 + id_)
    return replace(use, idle_since_s=idle_since_s, **changes)


def plan(*models: ModelUse, now_s: float = NOW_S) -> Plan:
    return make_plan(models, *RULES, now_s)


YOUNG = awake(1, awake_since_s=NOW_S - 2)
PINNED = [awake(1, is_pinned=True), asleep(2, is_pinned=True)]
IDLE = awake(1, 900, idle_limit_s=100)
ON_GPU = [replace(waiting(id_), device="GPU") for id_ in range(5, 15)]


@table(
    "models, wake, sleep",
    [
        # As many load at the start as fit.
        ([asleep(id_, is_eager=True) for id_ in range(1, 6)], [1, 2, 3], []),
        # None sleeps for one without a request.
        ([awake(1), awake(2), awake(3), asleep(4, is_eager=True)], [], []),
        # The least recently used one makes room for one that requests wait for.
        ([awake(1, 903), awake(2, 901), awake(3, 902), waiting(4)], [], [2]),
        # Idle models make room before busy models, and busy models by the time of waking.
        ([awake(1, None), awake(2, None), awake(3, 999), waiting(4)], [], [3]),
        ([awake(1, None), awake(2, None), awake(3, None), waiting(4)], [], [1]),
        # A pinned one is awake before others and never makes room.
        ([*PINNED, awake(3), awake(4), waiting(5, 0.0)], [], [3, 4]),
        ([*PINNED, awake(3)], [2], []),
        # Requests are served in the order in which they came.
        ([awake(1), awake(2), waiting(5, 980), waiting(3, 970), waiting(4, 990)], [3], [1, 2]),
        # Models that have grown above the budget make room until one is left.
        ([awake(1, 903), awake(2, 901, need_bytes=25)], [], [2]),
        ([awake(1, need_bytes=40)], [], []),
        # Devices have budgets of their own, and one without has no limit.
        ([awake(1), awake(2), awake(3), *ON_GPU], list(range(5, 15)), []),
        # A model sleeps after its idle time.
        ([IDLE], [], [1]),
        ([replace(IDLE, idle_since_s=None)], [], []),
        ([replace(IDLE, is_pinned=True)], [], []),
        ([replace(IDLE, waiting_since_s=999)], [], []),
    ],
)
def test_models_load_and_make_room(models, wake, sleep):
    assert plan(*models) == Plan(wake=wake, sleep=sleep)


@table(
    "models, wake, unfit",
    [
        # A model that can never fit is named and holds up no other.
        ([waiting(1, 900, need_bytes=31), waiting(2, 950)], [2], {1}),
        ([awake(1, is_pinned=True), waiting(2, need_bytes=21), waiting(3, 995)], [3], {2}),
        # Of two pinned ones that exclude each other the first one fits.
        ([asleep(1, 20, is_pinned=True), asleep(2, 20, is_pinned=True)], [1], {2}),
    ],
)
def test_what_never_fits_is_named(models: list[ModelUse], wake: list[int], unfit: set[int]) -> None:
    found = plan(*models)
    assert (found.wake, found.unfit) == (wake, unfit)


def test_models_and_versions_wait_for_room_and_their_turn_until_the_next_look() -> None:
    models = [awake(1), replace(awake(2), phase=Phase.LEAVING), awake(3), waiting(4)]
    assert plan(*models) == Plan()
    models[1] = asleep(2)
    assert plan(*models).wake == [4]

    found = plan(YOUNG, awake(2, waiting_since_s=999), awake(3, is_pinned=True), waiting(4))
    assert found.sleep == []
    later = plan(YOUNG, awake(2, waiting_since_s=999), waiting(4), asleep(5, 10), now_s=NOW_S + 3)
    assert (later.sleep, later.wake) == ([], [4])

    large, small = waiting(2, 980, need_bytes=25), waiting(3, 990, need_bytes=5)
    assert plan(YOUNG, large, small) == Plan()
    # Memory that the large model leaves over is free for others.
    leaving = replace(YOUNG, phase=Phase.LEAVING)
    assert plan(leaving, large, small).wake == [3]

    assert plan(replace(IDLE, idle_limit_s=101)) == Plan()

    new = replace(waiting(9), replaces=1)
    assert plan(former(1), awake(2), new).wake == [9]
    assert plan(former(1), awake(2), awake(3), new).sleep == [2]

    found = plan(former(1, 16), awake(2), replace(waiting(9, need_bytes=15), replaces=1))
    assert found.sleep == [1]
    assert plan(former(1, 16), replace(waiting(9, need_bytes=14), replaces=1)).wake == [9]

    assert plan(former(1, 25), waiting(2)) == Plan()


def former(id_: int, need_bytes: int = 10) -> ModelUse:
    return replace(awake(id_, None), need_bytes=need_bytes, is_former=True)


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
def test_what_loads_fits_and_nothing_that_must_stay_makes_room(models: list[ModelUse]) -> None:
    found = plan(*models)
    held = [each for each in models if each.device == "CPU" and each.holds_memory]
    woken = [each for each in models if each.device == "CPU" and each.id in found.wake]
    assert all(each.phase is Phase.ASLEEP for each in models if each.id in found.wake)
    assert not woken or sum(each.need_bytes for each in held + woken) <= 30

    for each in models:
        if each.id in found.sleep:
            assert each.phase is Phase.AWAKE
            assert not each.is_pinned
            assert each.waiting_since_s is None
    assert len(found.sleep) == len(set(found.sleep))


@given(machines)
def test_the_least_recently_used_model_makes_room_first(models: list[ModelUse]) -> None:
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
def test_each_model_that_is_waited_for_gets_its_turn(wanted: list[tuple[int, bool, float]]) -> None:
    """Engines load and end at once; a model that woke has served its requests after 5 s."""
    models = {
        id_: waiting(id_, since_s, need) if has_requests else asleep(id_, need)
        for id_, (need, has_requests, since_s) in enumerate(wanted)
    }
    now_s, served = NOW_S, set[int]()
    for _ in range(4 * len(models)):
        found = make_plan(models.values(), *RULES, now_s)
        for id_ in found.sleep:
            models[id_] = replace(models[id_], phase=Phase.ASLEEP)
        for id_ in found.wake:
            served.add(id_)
            use = replace(models[id_], phase=Phase.AWAKE, waiting_since_s=None)
            models[id_] = replace(use, awake_since_s=now_s)
        now_s += 5
    assert served == {id_ for id_, (_, has_requests, _) in enumerate(wanted) if has_requests}
