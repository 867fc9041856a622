"""The state of a model with several engines follows from their reports."""

from typing import Any

from vinery_serving.models.engine_status import EngineState
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
