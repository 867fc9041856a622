"""The environment of engine processes: where programs and drivers are, and no secrets."""

import os
from typing import Final

_PASSED_ON: Final = ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH", "HOME")


def engine_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
