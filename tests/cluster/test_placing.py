"""Which host runs which replica."""

from dataclasses import replace
from typing import Any

from vinery_serving.cluster.placing import Assignment, HostOffer, Refusal, Replica, place_locally

A, B, C = (HostOffer(id=each, name=each) for each in "abc")
ONE = Replica(1, 0, "CPU")


def placed(
    wanted: Any, hosts: Any, *present: Assignment
) -> tuple[set[tuple[int, int, str]], dict[int, Refusal]]:
    found = place_locally(wanted, hosts, present)
    return set(found.assignments), dict(found.refused)


def hosts_of(wanted: Any, hosts: Any, *present: Assignment) -> list[str]:
    """By model and replica."""
    found, refused = placed(wanted, hosts, *present)
    assert not refused
    return [host for _, _, host in sorted(found)]


def test_replicas_of_a_model_spread_and_others_stay_where_they_are() -> None:
    several = [Replica(1, number, "CPU") for number in range(3)]
    assert hosts_of(several, [A, B, C]) == ["a", "b", "c"]
    assert hosts_of([Replica(model, 0, "CPU") for model in range(4)], [A, B]) == ["a", "b"] * 2

    running = [Assignment(1, number, "a", is_ready=True) for number in range(3)]
    assert hosts_of(several, [A, B], *running) == ["a", "a", "b", "a"], "one goes to a new host"
    moving = [*running, Assignment(1, 1, "b")]
    assert hosts_of(several, [A, B], *moving) == ["a", "a", "b", "a"], "it serves until it is there"
    moved = [running[0], Assignment(1, 1, "b", is_ready=True), running[2]]
    assert hosts_of(several, [A, B], *moved) == ["a", "b", "a"]
    assert hosts_of(several, [A, B, C], *moved) == ["a", "b", "a", "c"]
    lacking = replace(B, lacks=frozenset({"/m"}))
    stored = [replace(each, files=frozenset({"/m"})) for each in several]
    assert hosts_of(stored, [A, lacking], *running) == ["a", "a", "a"], "nobody can fetch it yet"
    others = [Replica(model, 0, "CPU") for model in range(2)]
    both = [Assignment(model, 0, "a", is_ready=True) for model in range(2)]
    assert hosts_of(others, [A, B], *both) == ["a", "a"], "a new host moves no sole replica"
    loading = [Assignment(1, 0, "b"), Assignment(1, 1, "b")]
    assert hosts_of(several, [A, B], *loading) == ["b", "b", "a"]
    assert hosts_of(several[:1], [A, B], *running) == ["a"], "the others are not wanted any more"
    assert hosts_of([], [A], *running) == []


def test_a_host_that_drains_keeps_its_replica_until_another_one_serves() -> None:
    hosts = [replace(A, is_draining=True), B]
    old = Assignment(1, 0, "a", is_ready=True)
    assert hosts_of([ONE], hosts, old) == ["a", "b"]
    assert hosts_of([ONE], hosts, old, Assignment(1, 0, "b")) == ["a", "b"]
    assert hosts_of([ONE], hosts, old, Assignment(1, 0, "b", is_ready=True)) == ["b"]
    assert hosts_of([ONE], hosts, old, Assignment(1, 0, "b", is_asleep=True)) == ["b"]
    failed = Assignment(1, 0, "b", is_asleep=True, has_failed=True)
    assert hosts_of([ONE], hosts, old, failed) == ["a", "b"], "the new one cannot answer"
    assert hosts_of([ONE], hosts, replace(old, is_ready=False)) == ["b"], "nothing serves there"

    assert hosts_of([ONE], hosts[:1], old) == ["a"], "there is no other host"
    both = [replace(each, is_draining=True) for each in (A, B)]
    drained = "a is being drained, b is being drained"
    refused = {1: (f"No host can run it: {drained}.", True)}
    assert placed([ONE], both, old) == ({(1, 0, "a")}, refused), "it stays, with the reason"
    back = [old, Assignment(1, 0, "b")]
    assert hosts_of([ONE], [A, B], *back) == ["a"], "its host takes replicas again"


def test_replicas_of_a_host_that_is_gone_go_to_others_and_do_not_return() -> None:
    assert hosts_of([ONE], [B, C], Assignment(1, 0, "a", is_ready=True)) == ["b"]
    assert hosts_of([ONE], [A, B], Assignment(1, 0, "b")) == ["b"]


def test_labels_pin_replicas_and_move_those_that_run_elsewhere() -> None:
    fast = replace(B, labels=frozenset({"disk=fast", "host=b"}))
    pinned = replace(ONE, labels=frozenset({"disk=fast"}))
    assert hosts_of([pinned], [A, fast]) == ["b"]
    assert hosts_of([pinned], [A, fast], Assignment(1, 0, "a", is_ready=True)) == ["a", "b"]
    _, refused = placed([pinned], [A, C])
    lacking = "has not the label disk=fast"
    assert refused == {1: (f"No host can run it: a {lacking}, c {lacking}.", True)}
    _, refused = placed([pinned], [A, replace(fast, is_away=True)])
    assert refused == {1: (f"No host can run it yet: a {lacking}, b is away.", False)}


def test_a_replica_goes_where_its_device_its_files_and_room_are() -> None:
    gpu = replace(B, budgets={"CPU": None, "GPU": 10})
    cpu = replace(A, budgets={"CPU": 10}, lacks=frozenset({"/models/b"}))
    assert hosts_of([replace(ONE, device="GPU")], [cpu, gpu, C][:2]) == ["b"]
    assert hosts_of([replace(ONE, files=frozenset({"/models/b"}))], [cpu, C]) == ["c"]
    assert hosts_of([replace(ONE, needed_bytes=11)], [cpu, gpu]) == ["b"]
    _, refused = placed([replace(ONE, device="GPU", needed_bytes=20_400_000)], [cpu, gpu])
    little = "b has too little memory (0 of 20 MB)"
    assert refused == {1: (f"No host can run it: a has no GPU, {little}.", True)}

    having = replace(B, has=frozenset({"/m"}))
    several = [replace(ONE, number=number, files=frozenset({"/m"})) for number in range(3)]
    assert hosts_of(several, [A, having]) == ["b", "a", "b"], "spread, and first where files are"
    full = replace(having, budgets={"CPU": 1})
    fetched = replace(ONE, files=frozenset({"/m"}), needed_bytes=2)
    assert hosts_of([fetched], [replace(A, budgets={"CPU": 2}), full]) == ["a"], "not asleep"

    other = replace(cpu, id="c", name="c")
    wanted = [Replica(number, 0, "CPU", needed_bytes=6) for number in range(2)]
    running = Assignment(1, 0, "a", is_ready=True)
    assert hosts_of(wanted, [cpu, other], running) == ["c", "a"]
    third = Replica(2, 0, "CPU", needed_bytes=6)
    assert len(hosts_of([*wanted, third], [cpu, other])) == 3, "models may sleep for each other"


def test_a_replica_that_sleeps_for_want_of_memory_goes_where_there_is_room() -> None:
    full, free = (replace(each, budgets={"CPU": 10}) for each in (A, B))
    wanted = [Replica(number, 0, "CPU", needed_bytes=6) for number in range(2)]
    present = [Assignment(0, 0, "a", is_asleep=True), Assignment(1, 0, "a", is_ready=True)]
    assert hosts_of(wanted, [full, free], *present) == ["b", "a"]
    full_too = Assignment(2, 0, "b", is_ready=True)
    third = Replica(2, 0, "CPU", needed_bytes=6)
    assert hosts_of([*wanted, third], [full, free], *present, full_too) == ["a", "a", "b"]
    idle = Assignment(0, 0, "a", is_asleep=True)
    assert hosts_of(wanted[:1], [full, free], idle) == ["a"], "it has room where it is"


def test_a_sole_host_gets_all_and_reports_itself_what_does_not_fit() -> None:
    tight = replace(A, budgets={"CPU": 1}, lacks=frozenset({"/m"}), is_draining=True)
    wanted = [
        Replica(1, 0, "GPU", 9, frozenset({"/m"}), frozenset({"disk=fast"})),
        Replica(2, 0, "CPU", 9),
    ]
    assert hosts_of(wanted, [tight]) == ["a", "a"]
    assert hosts_of(wanted, [tight], Assignment(2, 0, "a", is_asleep=True)) == ["a", "a"]
    _, refused = placed(wanted, [])
    assert refused == dict.fromkeys((1, 2), ("No host can run it yet: none runs.", False))
