"""An engine that its model has taken over reaches nothing of others."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.engine.conftest import StartEngine, engine_config
from tests.gateway.workers.attacks import a_neighbour
from tests.gateway.workers.test_confinement import ATTACKS, STOPPED_BY, check_parts
from vinery_serving.processes.confine import ESSENTIAL, Part, available
from vinery_serving.transport.messages import LogitsSpec

# An engine is not limited in memory and files, outlives its node, and the next node reads its
# memory's size and its page.
ALLOWED = {"leave_a_core", "outlive_the_parent", "raise_a_limit"}


@pytest.mark.live
async def test_an_engine_that_was_taken_over_starts_nothing_and_reaches_nothing_of_others(
    tmp_path_factory: pytest.TempPathFactory, start_engine: StartEngine
) -> None:
    if not available() >= ESSENTIAL:
        pytest.skip("this kernel has not all parts")
    home, processor = tmp_path_factory.mktemp("home"), "tests.gateway.workers.attacks:in_an_engine"
    with a_neighbour(home) as targets:
        async with start_engine(logits_processors=(processor,)) as gateway:
            spec = LogitsSpec(processor_args={"targets": asdict(targets), "attacks": ATTACKS})
            (answer,) = await gateway.ask(gateway.submit("Hi", logits=spec))

    assert answer.rejection is not None
    assert set(json.loads(answer.rejection.message.partition(": ")[2])) == ALLOWED


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel refuses some attacks to others than root")
def test_each_part_keeps_an_engine_from_what_it_is_for(tmp_path: Path) -> None:
    if not (parts := available()) >= ESSENTIAL:
        pytest.skip("this kernel has not all parts")
    # The node hands descriptors down to an engine.
    others = ALLOWED | {"use_an_inherited_descriptor"}
    stopped_by = {name: sets for name, sets in STOPPED_BY.items() if name not in others}
    # An engine may read /proc, so the kernel's rules for tracing decide.
    stopped_by["read_the_environment"] = ({Part.FILES, Part.CAPABILITIES},)
    (tmp_path / "home").mkdir()
    with a_neighbour(tmp_path / "home") as targets:
        check_parts(targets, parts, stopped_by, engine_config(tmp_path / "engine", "e", {}))
