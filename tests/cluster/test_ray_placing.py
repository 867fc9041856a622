"""What becomes of replicas where Ray places them. Ray itself is in `nightly_ray.py`."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from vinery_serving.cluster.placing import Assignment, HostOffer, Placing, Replica
from vinery_serving.cluster.ray_agent import Group, RayTurn

A, B, C = (HostOffer(id=each, name=each) for each in "abc")
MIB = 1 << 20
ONE = Replica(1, 0, "CPU", 10 * MIB)


class FakeRay:
    """Places each group on the host with most memory left, and moves none."""

    def __init__(self, **free: int) -> None:
        """`free`: the MiB of each host's CPU."""
        self.free = Counter(free)
        self.groups: dict[str, Group] = {}
        self.bundles: dict[str, tuple[str, int]] = {}
        self.num_created = 0
        self.is_slow = False

    @property
    def hosts(self) -> list[str]:
        return list(self.free)

    def all(self) -> list[Group]:
        return list(self.groups.values())

    def create(self, name: str, bundle: tuple[str, int], hosts: Sequence[str]) -> Group:
        assert name not in self.groups, "Ray refuses a second group of this name"
        assert bundle[1] > 0, "Ray refuses an empty bundle"
        self.num_created += 1
        is_cpu = bundle[0] == "vinery-CPU" and not self.is_slow
        room = [each for each in hosts if is_cpu and self.free[each] >= bundle[1]]
        host = max(room, key=lambda each: (self.free[each], each), default=None)
        self.groups[name] = Group(name, host, is_stuck=host is None and not self.is_slow)
        self.bundles[name] = bundle
        if host is not None:
            self.free[host] -= bundle[1]
        return self.groups[name]

    def remove(self, name: str) -> None:
        group = self.groups.pop(name)
        if group.host is not None:
            self.free[group.host] += self.bundles[name][1]

    def lose(self, host: str) -> None:
        """The Ray node of a host dies: its groups wait."""
        for name, group in self.groups.items():
            if group.host == host:
                self.groups[name] = Group(name, None, is_stuck=True)
        del self.free[host]


def place(
    ray: FakeRay,
    wanted: Collection[Replica],
    hosts: Collection[HostOffer],
    present: Collection[Assignment],
) -> Placing:
    return RayTurn(ray, hosts, wanted).place(wanted, present)  # type: ignore[arg-type]


def several(number: int) -> list[Replica]:
    return [replace(ONE, number=each) for each in range(number)]


def reported(placing: Placing, **fields: Any) -> list[Assignment]:
    return [Assignment(*each, **fields) for each in sorted(placing.assignments)]


def hosts_of(placing: Placing) -> list[str]:
    assert not placing.refused
    return [host for _, _, host in sorted(placing.assignments)]


def test_replicas_of_a_model_spread_although_one_host_has_most_memory() -> None:
    ray = FakeRay(a=1000, b=100, c=100)
    placed = place(ray, several(3), [A, B, C], [])
    assert sorted(hosts_of(placed)) == ["a", "b", "c"]
    assert place(ray, several(3), [A, B, C], reported(placed, is_ready=True)) == placed
    assert ray.num_created == 3

    more = place(ray, several(5), [A, B, C], reported(placed, is_ready=True))
    assert max(Counter(hosts_of(more)).values()) == 2
    full = FakeRay(a=1000, b=5, c=5)
    beside = place(full, several(2), [A, B, C], [])
    assert hosts_of(beside) == ["a", "a"], "room comes before"
    assert len(full.groups) == 2
    assert place(full, several(2), [A, B, C], reported(beside, is_ready=True)) == beside
    assert full.num_created == 3, "what has no other place is left alone"
    late = FakeRay(a=1000)
    sole = reported(place(late, several(2), [A], []), is_ready=True)
    late.free["b"] = 100
    assert hosts_of(place(late, several(2), [A, B], sole)) == ["a", "a", "b"]
    moved = [sole[0], Assignment(1, 1, "b", is_ready=True)]
    assert hosts_of(place(late, several(2), [A, B], [*sole[1:], *moved])) == ["a", "b"]
    assert late.free == {"a": 990, "b": 90}
    fewer = place(ray, several(1), [A, B, C], reported(placed))
    assert len(ray.groups) == len(fewer.assignments) == 1


def test_what_has_no_room_waits_for_it_with_a_reason_and_one_group() -> None:
    ray = FakeRay(a=5, b=5)
    found = place(ray, [ONE], [A, B], [])
    assert found.assignments == frozenset()
    full = "{} has not 10 MiB of vinery-CPU left in Ray"
    reason = f"No host can run it yet: {full.format('a')}, {full.format('b')}."
    assert found.refused == {1: (reason, False)}
    joining = f"No host can run it yet: {full.format('a')}, b is not in Ray yet."
    assert place(FakeRay(a=5), [ONE], [A, B], []).refused == {1: (joining, False)}
    num_created = ray.num_created
    place(ray, [ONE], [A, B], [])
    assert ray.num_created == num_created, "the group waits as it is"
    ray.free["c"] = 10
    assert hosts_of(place(ray, [ONE], [A, B, C], [])) == ["c"]
    gpu = place(ray, [replace(ONE, device="GPU")], [replace(A, budgets={"CPU": None})], [])
    assert gpu.refused == {1: ("No host can run it: a has no GPU.", True)}
    assert not ray.groups


def test_a_host_that_drains_keeps_its_replica_until_another_one_serves() -> None:
    ray = FakeRay(a=100, b=50)
    first = place(ray, [ONE], [A, B], [])
    assert hosts_of(first) == ["a"]
    hosts = [replace(A, is_draining=True), B]
    assert hosts_of(place(ray, [ONE], hosts, reported(first, is_ready=True))) == ["a", "b"]
    old, new = Assignment(1, 0, "a", is_ready=True), Assignment(1, 0, "b")
    assert hosts_of(place(ray, [ONE], hosts, [old, new])) == ["a", "b"]
    served = [old, replace(new, is_ready=True)]
    assert hosts_of(place(ray, [ONE], hosts, served)) == ["b"]
    assert ray.free == {"a": 100, "b": 40}
    full = FakeRay(a=100, b=5)
    place(full, [ONE], [A, B], [])
    stays = place(full, [ONE], hosts, [old])
    assert stays.assignments == {(1, 0, "a")}, "there is no room elsewhere"
    assert "b has not 10 MiB" in stays.refused[1].reason


def test_a_replica_stays_while_its_host_lives_whatever_ray_does_with_the_group() -> None:
    ray = FakeRay(a=100, b=50)
    first = reported(place(ray, [ONE], [A, B], []), is_ready=True)
    ray.lose("a")
    assert hosts_of(place(ray, [ONE], [A, B], first)) == ["a"]
    ray.groups.clear()  # Ray has lost its head, and all that it knew
    ray.free["a"] = 100
    assert hosts_of(place(ray, [ONE], [A, B], first)) == ["a"]
    assert ray.free == {"a": 90, "b": 50}, "the group is where the replica is"
    tight = FakeRay(a=10)
    other = replace(ONE, model=0)
    assert place(tight, [other, ONE], [A], first).refused.keys() == {0}, "it has the memory"
    [group] = [each for each in tight.all() if each.key == (1, 0)]
    assert group.host == "a"

    files = frozenset({"/m"})
    lacking, filed = replace(A, lacks=files), replace(ONE, files=files)
    assert hosts_of(place(ray, [filed], [lacking, B], first)) == ["a"], "it runs without its files"
    asleep = [replace(first[0], is_ready=False, is_asleep=True)]
    assert hosts_of(place(ray, [filed], [lacking, B], asleep)) == ["b"], "it could not start again"

    assert hosts_of(place(ray, [ONE], [B], first)) == ["b"], "the lease of a has ended"
    assert ray.free == {"a": 100, "b": 40}


def test_a_group_follows_what_the_replica_needs_and_the_groups_of_others_stay() -> None:
    ray = FakeRay(a=100)
    ray.groups["trainer"] = Group("trainer", "a")
    for left in ("vinery/9/0/vinery-CPU/5/0", "vinery/1/0/vinery-CPU/10/0", "vinery/1/0/x/1/0"):
        ray.groups[left] = Group(left, None)
    first = place(ray, [ONE], [A], [])
    assert ray.free["a"] == 90
    larger = replace(ONE, needed_bytes=20 * MIB + 1)
    assert hosts_of(place(ray, [larger], [A], reported(first, is_ready=True))) == ["a"]
    assert ray.free["a"] == 79
    assert len(ray.groups) == 2
    assert "trainer" in ray.groups
    assert hosts_of(place(FakeRay(a=1), [replace(ONE, needed_bytes=0)], [A], [])) == ["a"]


def test_a_turn_makes_only_so_many_groups_and_none_after_one_that_ray_has_not_placed() -> None:
    ray = FakeRay(a=1000, b=1000)
    first = place(ray, several(9), [A, B], [])
    assert 0 < len(first.assignments) < 9
    assert not first.refused
    assert len(place(ray, several(9), [A, B], reported(first)).assignments) == 9

    slow = FakeRay(a=1000, b=1000)
    slow.is_slow = True
    assert place(slow, several(3), [A, B], []) == Placing(frozenset(), {})
    place(slow, several(3), [A, B], [])
    assert slow.num_created == 1, "Ray gets its time"
    slow.is_slow, slow.free["b"] = False, 0
    [waiting] = slow.all()
    slow.groups[waiting.name] = replace(waiting, host="a")
    slow.is_slow = True
    assert hosts_of(place(slow, several(2), [A, B], [])) == ["a"]
    [first, second] = slow.all()
    slow.groups[second.name] = replace(second, is_stuck=True)  # b, where there is no other, is full
    slow.is_slow = False
    num_created = slow.num_created
    assert hosts_of(place(slow, several(2), [A, B], [])) == ["a", "a"]
    assert slow.num_created == num_created + 1, "b is not tried again"
