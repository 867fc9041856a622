"""What the counters report is divided among requests and idle energy, without loss."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.energy.counter_files import card, package
from vinery_serving.engine.energy.busy import BusyTimes
from vinery_serving.engine.energy.counters import package_counters
from vinery_serving.engine.energy.meter import (
    EnergyMeter,
    EnergySource,
    RequestEnergy,
    StepWork,
    new_meter,
)


@dataclass
class Machine:
    """One engine that alone uses a package, with a clock that the test sets."""

    folder: Path
    now: float = 1000.0
    used_j: float = 0.0
    reported_j: float = 0.0
    watts: float = 10.0
    meter: EnergyMeter = field(init=False)

    def __post_init__(self) -> None:
        self._zone = package(self.folder)
        sources = [EnergySource(package_counters(self.folder), BusyTimes(self.folder / "energy"))]
        self.meter = EnergyMeter(sources, lambda: self.now)

    def step(self, seconds: float, *works: StepWork, is_end: bool = False) -> None:
        self.meter.begin()
        self._pass(seconds)
        self.meter.note(works, is_end=is_end)

    def rest(self, seconds: float) -> None:
        self.meter.end()
        self._pass(seconds)
        self.meter.end()

    def request(self) -> RequestEnergy:
        return RequestEnergy(self.meter.totals)

    def report(self, energy: RequestEnergy) -> float:
        joules = energy.take_unreported_j()
        self.reported_j += joules
        return joules

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.used_j += seconds * self.watts
        self._zone.use(seconds * self.watts)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_request_alone_gets_all_energy_while_it_runs(machine: Machine) -> None:
    one = machine.request()
    assert one.take_unreported_j() is None, "before the first metered step"
    machine.rest(5)
    machine.step(2, StepWork(one, 10, 0))
    machine.step(1, StepWork(one, 0, 1), is_end=True)
    assert machine.report(one) == pytest.approx(30)
    machine.rest(5)
    assert machine.meter.totals.used_j == pytest.approx(130)
    assert machine.meter.totals.reported_j == pytest.approx(30)


def test_unsampled_energy_is_estimated_and_then_corrected(machine: Machine) -> None:
    one = machine.request()
    machine.step(0.2, StepWork(one, 0, 1))
    assert machine.report(one) == pytest.approx(2)
    machine.watts = 20
    machine.step(0.05, StepWork(one, 0, 1))
    assert machine.report(one) == pytest.approx(0.5)  # by the 10 W of before
    machine.step(0.06, StepWork(one, 0, 1))
    assert machine.report(one) == pytest.approx(1.7)
    assert machine.reported_j == pytest.approx(0.2 * 10 + 0.11 * 20)


def test_a_step_for_no_request_is_idle_energy_and_requests_share_theirs(machine: Machine) -> None:
    machine.step(1, is_end=True)
    machine.rest(1)
    assert machine.meter.totals.used_j == pytest.approx(20)
    assert machine.meter.totals.reported_j == 0

    long, short = machine.request(), machine.request()
    machine.step(1, StepWork(long, 0, 1), StepWork(short, 0, 1), is_end=True)
    machine.watts = 30
    machine.step(1, StepWork(long, 0, 1), is_end=True)
    assert machine.report(short) == pytest.approx(5)
    assert machine.report(long) == pytest.approx(35)


SECONDS = st.floats(0.001, 3)
STEPS = st.tuples(
    SECONDS,
    st.dictionaries(
        st.integers(0, 4), st.tuples(st.integers(0, 300), st.integers(0, 4)), max_size=4
    ),
    st.sets(st.integers(0, 4)),
)


@given(st.lists(st.tuples(st.floats(1, 300), STEPS | SECONDS), max_size=30))
def test_requests_and_idle_energy_sum_up_to_the_counters(events):
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        requests = [machine.request() for _ in range(5)]
        for machine.watts, event in events:
            if isinstance(event, float):
                machine.rest(event)
                continue
            seconds, counts, ending = event
            works = [StepWork(requests[at], *each) for at, each in counts.items()]
            machine.step(seconds, *works, is_end=bool(ending & counts.keys()))
            for at in ending & counts.keys():
                machine.report(requests[at])
        machine.step(0.001, *[StepWork(each, 0, 1) for each in requests], is_end=True)
        for each in requests:
            machine.report(each)
        totals = machine.meter.totals
        assert totals.used_j == pytest.approx(machine.used_j, rel=1e-3)
        assert totals.reported_j == pytest.approx(machine.reported_j)
        sampled_j = sum(each.sampled_j for each in requests)
        # An estimate that was too high is taken back from what comes later, as far as it goes.
        assert machine.reported_j >= sampled_j * (1 - 1e-6)
        assert sampled_j <= totals.used_j * (1 + 1e-6)


def test_a_card_counts_for_engines_on_it_and_nothing_without_counters(tmp_path: Path) -> None:
    assert new_meter(tmp_path / "sys", tmp_path / "energy", "CPU") is None
    package(tmp_path)
    (tmp_path / "energy").touch()
    assert new_meter(tmp_path, tmp_path / "energy", "CPU") is None

    sysfs = tmp_path / "sys"

    def sources_of(device: str) -> int:
        meter = new_meter(sysfs, tmp_path / f"energy of {device}", device)
        return 0 if meter is None else len(meter.sources)

    card(sysfs)
    assert (sources_of("CPU"), sources_of("GPU.0")) == (0, 1)
    package(sysfs)
    assert (sources_of("CPU"), sources_of("GPU.1")) == (1, 2)
