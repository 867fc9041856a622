"""The state of a model with several engines follows from their reports, and so does its history."""

from typing import Any

import pytest

from vinery_serving.models.engine_status import EngineState
from vinery_serving.models.job_rows import ModelEvent
from vinery_serving.models.models import ServedModel
from vinery_serving.node import status
from vinery_serving.node.status import ReplicaStates, Subject


def report(
    states: ReplicaStates, replica: int, state: EngineState, digest: str = "a", **more: Any
) -> dict[str, Any]:
    values = {"state": state, "pid": None, "num_restarts": 0, **more}
    return states.of_model(Subject(7, digest, replica, "CPU"), values)


def test_a_model_is_as_good_as_its_best_engine_that_runs_with_its_settings() -> None:
    states = ReplicaStates()
    assert report(states, 0, EngineState.READY, pid=11)["replicas"] == []
    found = report(states, 1, EngineState.FAILED, last_error="No memory.", num_restarts=2)

    assert (found["state"], found["pid"], found["num_restarts"]) == ("ready", 11, 2)
    assert [(each["replica"], each["state"], each["error"]) for each in found["replicas"]] == [
        (0, "ready", ""),
        (1, "failed", "No memory."),
    ]
    assert report(states, 0, EngineState.LOADING)["state"] == "loading"

    states = ReplicaStates()
    report(states, 0, EngineState.READY, pid=11)
    report(states, 1, EngineState.READY, pid=12)
    assert report(states, 0, EngineState.UNLOADED)["pid"] == 12
    assert report(states, 0, EngineState.LOADING, digest="b")["state"] == "loading"
    assert report(states, 0, EngineState.UNLOADED, digest="b")["state"] == "unloaded"


@pytest.mark.django_db
def test_the_history_has_each_change_of_the_state_with_the_reason_of_a_failure() -> None:
    model = ServedModel.objects.create(name="m", folder="/m")
    crashed = {"state": "loading", "last_error": "It crashed."}
    cut = {"state": "failed", "last_error": "It is cut.\n\nThe original."}
    states = [{"state": each} for each in ("loading", "ready", "ready", "asleep", "asleep")]
    for values in (*states, crashed, cut):
        status._write(model.pk, values)
    assert list(ModelEvent.objects.order_by("id").values_list("state", "reason")) == [
        *(("loading", ""), ("ready", ""), ("asleep", "")),
        *(("loading", "It crashed."), ("failed", "It is cut.")),
    ]
