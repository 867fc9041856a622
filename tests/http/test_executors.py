"""The event loop's default executor has few threads, so nothing of a client may run there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("http", "requests", "runtime", "intake", "workers", "flow", "prompting", "constraints")
_DEFAULT_EXECUTOR = re.compile(r"\bto_thread\(|run_in_executor\(\s*None|thread_sensitive=False")


def test_no_room_that_a_request_passes_uses_the_default_executor() -> None:
    found = [
        path.relative_to(ROOT)
        for room in ROOMS
        for path in (ROOT / "serving" / room).rglob("*.py")
        if _DEFAULT_EXECUTOR.search(path.read_text())
    ]

    assert found == []
