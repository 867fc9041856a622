"""Which requests are at fault when engines end."""

import asyncio

from vinery_serving.gateway.engines import suspects as module
from vinery_serving.gateway.engines.suspects import Run, Suspects


def end_engine(suspects: Suspects, *runs: Run) -> None:
    """The engine of these requests ends. Each of them notices that."""
    for run in runs:
        suspects.engine_ended(run)


async def submit(suspects: Suspects, *runs: Run) -> None:
    for run in runs:
        await suspects.take_turn(run)
        suspects.submitted(run)


async def test_the_only_request_at_two_ends_of_an_engine_is_at_fault():
    suspects, run, first, second = Suspects(), Run(), Run(), Run()
    for other in (first, second):
        await submit(suspects, run, other)
        end_engine(suspects, run, other)
        suspects.ended(other)
    assert run.is_at_fault
    assert not (first.is_at_fault or second.is_at_fault)

    # Requests of another engine of the model are no suspects.
    suspects, run, neighbour = Suspects(), Run(), Run()
    suspects.submitted(neighbour, "other")
    for _ in range(2):
        suspects.submitted(run, "engine")
        end_engine(suspects, run)
    assert run.is_at_fault
    assert neighbour.num_ends == 0


async def test_a_request_that_ran_for_long_is_not_suspected_of_the_end_before(monkeypatch):
    monkeypatch.setattr(module, "_INNOCENT_AFTER_S", 0.0)
    suspects, run = Suspects(), Run()
    for _ in range(3):
        await submit(suspects, run)
        end_engine(suspects, run)

    assert not run.is_at_fault


async def test_several_suspects_go_on_one_after_the_other():
    suspects, runs = Suspects(), [Run(), Run(), Run()]
    for _ in range(2):
        await submit(suspects, *runs)
        end_engine(suspects, *runs)
    assert not any(run.is_at_fault for run in runs)

    await submit(suspects, runs[0])
    others = [asyncio.create_task(submit(suspects, run)) for run in runs[1:]]
    await asyncio.sleep(0)
    assert not any(run.has_turn for run in runs[1:])
    suspects.generated(runs[0])
    await asyncio.sleep(0)
    assert [run.has_turn for run in runs] == [False, True, False]

    end_engine(suspects, *runs[:2])
    assert [run.is_at_fault for run in runs] == [False, True, False]
    suspects.ended(runs[1])
    await asyncio.gather(*others)
    assert runs[2].has_turn


async def test_a_request_that_leaves_gives_its_turn_to_the_next():
    suspects, runs = Suspects(), [Run(), Run()]
    for _ in range(2):
        await submit(suspects, *runs)
        end_engine(suspects, *runs)
    await submit(suspects, runs[0])
    suspects.ended(runs[0])

    await submit(suspects, runs[1])

    assert runs[1].has_turn
