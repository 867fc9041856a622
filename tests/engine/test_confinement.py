"""An engine that its model has taken over reaches nothing of others."""

import json
from dataclasses import asdict

import pytest

from tests.engine.conftest import StartEngine
from tests.workers.attacks import a_neighbour
from tests.workers.test_confinement import ATTACKS
from vinery_serving.processes.confine import ESSENTIAL, available
from vinery_serving.transport.messages import LogitsSpec


@pytest.mark.live
async def test_an_engine_that_was_taken_over_starts_python_and_reaches_nothing_of_others(
    tmp_path_factory: pytest.TempPathFactory, start_engine: StartEngine
) -> None:
    if not available() >= ESSENTIAL:
        pytest.skip("this kernel has not all parts")
    # No engine lacks its processor, so this one is not replaced by another program.
    tried = [each for each in ATTACKS if each != "run_a_program"]
    home, processor = tmp_path_factory.mktemp("home"), "tests.workers.attacks:in_an_engine"
    with a_neighbour(home) as targets:
        async with start_engine(logits_processors=(processor,)) as gateway:
            spec = LogitsSpec(processor_args={"targets": asdict(targets), "attacks": tried})
            (answer,) = await gateway.ask(gateway.submit("Hi", logits=spec))

    assert answer.rejection is not None
    done = set(json.loads(answer.rejection.message.partition(": ")[2]))
    # An engine is not limited in memory and files, and outlives its node. Its checker of grammars
    # is a process. Landlock lets it signal its own children only.
    assert "fork" in done, "the attacks were not tried"
    assert done <= {
        *("fork", "leave_a_core", "outlive_the_parent", "raise_a_limit", "take_a_descriptor"),
    }
