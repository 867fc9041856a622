"""How long the requests that run may go on when a web process, or all of Vinery, is ended."""

from typing import Final

from vinery_platform.config import env
from vinery_serving.processes import parent

# Below `parent.GRACE_S`: without a supervisor there is no node, and engines end.
_WITHOUT_SUPERVISOR_S: Final = 2.0
# What a web process needs after its last request: to send errors, close connections, store usage.
CLOSE_WITHIN_S: Final = 2.0


def limit_from_env() -> int:
    """VINERY_DRAIN_S. Raises `SettingError` for a number out of range."""
    return env.integer("VINERY_DRAIN_S", 30, at_least=0, at_most=3600)


def limit_s() -> float:
    """The limit that is in force in this process now, in seconds."""
    limit = float(limit_from_env())
    return min(limit, _WITHOUT_SUPERVISOR_S) if parent.is_orphan() else limit
