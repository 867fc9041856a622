"""What an engine runs: its configuration, its environment and its code, as one digest.

A node adopts an engine only if it would start the same one itself.
"""

import hashlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from msgspec import structs

from vinery_serving.engine.config import EngineConfig

_SERVING: Final = Path(__file__).resolve().parents[1]
# The rooms of which engine processes consist.
_ROOMS: Final = ("core", "engine", "logs", "pooling", "processes", "transport")
_PACKAGES: Final = ("openvino", "openvino-genai", "openvino-tokenizers")
# Where programs and drivers are, and no secrets.
_PASSED_ON: Final = ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH", "HOME")


def engine_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def with_digest(config: EngineConfig, environment: Mapping[str, str]) -> EngineConfig:
    """The same configuration with its digest."""
    plain = structs.replace(config, digest="", heartbeat_fd=None)
    parts = (plain.to_line(), repr(sorted(environment.items())).encode(), _code())
    return structs.replace(config, digest=hashlib.sha256(b"\0".join(parts)).hexdigest())


@cache
def _code() -> bytes:
    """The state of the code when this process first asked for it."""
    files = sorted(path for room in _ROOMS for path in (_SERVING / room).rglob("*.py"))
    states = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files]
    versions = [metadata.version(name) for name in _PACKAGES]
    return repr((sys.version, versions, states)).encode()
