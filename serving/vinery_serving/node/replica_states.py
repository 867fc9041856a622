"""The state of a model with several engines: what the best of them is."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from vinery_serving.catalog.engine_status import EngineState

_BEST_FIRST: Final = (
    EngineState.READY,
    EngineState.LOADING,
    EngineState.RETRYING,
    EngineState.ASLEEP,
    EngineState.FAILED,
)


class Subject(NamedTuple):
    """What a report is about: an engine of a model with these settings."""

    model_id: int
    settings_digest: str
    replica: int = 0
    device: str = ""


class ReplicaStates:
    """The last report of each engine of this node."""

    def __init__(self) -> None:
        self._engines: dict[int, dict[int, tuple[Subject, Mapping[str, Any]]]] = {}  # by model

    def of_model(self, subject: Subject, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a report about one engine as a report about its model."""
        engines = self._engines.setdefault(subject.model_id, {})
        if values["state"] == EngineState.UNLOADED:
            engines.pop(subject.replica, None)
        else:
            engines[subject.replica] = subject, values
        # Reports about former settings are obsolete.
        for replica, (other, _) in list(engines.items()):
            if other.settings_digest != subject.settings_digest:
                del engines[replica]
        if not engines:
            return {**values, "replicas": []}
        best = min(
            (known for _, known in engines.values()),
            key=lambda known: _BEST_FIRST.index(known["state"]),
        )
        rows = [_row(*engine) for _, engine in sorted(engines.items())]
        return {
            **values,
            "state": best["state"],
            "pid": best["pid"],
            "num_restarts": sum(known["num_restarts"] for _, known in engines.values()),
            "replicas": rows if len(rows) > 1 or subject.replica else [],
        }


def _row(subject: Subject, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "replica": subject.replica,
        "device": subject.device,
        "state": str(values["state"]),
        "pid": values["pid"],
        "num_restarts": values["num_restarts"],
        "error": values.get("last_error", ""),
    }
