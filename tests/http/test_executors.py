"""The event loop's default executor has few threads, so nothing of a client may run there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("gateway", "prompting", "grammars")
_DEFAULT_EXECUTOR = re.compile(r"\bto_thread\(|run_in_executor\(\s*None|thread_sensitive=False")


def test_no_room_that_a_request_passes_uses_the_default_executor() -> None:
    files = [
        path for room in ROOMS for path in (ROOT / "serving/vinery_serving" / room).rglob("*.py")
    ]

    assert len(files) > 50
    assert [each for each in files if _DEFAULT_EXECUTOR.search(each.read_text())] == []
