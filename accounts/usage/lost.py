"""Token counts that engines write when a gateway dies.

An engine writes one file `*.lost` beside the journals for each broken connection, with one
line for each generation: `[request_id, num_prompt_tokens, num_cached_tokens,
num_output_tokens]`. Several generations of one request are its samples, which share the
prompt.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Final

from accounts.usage.entries import Progress

logger = logging.getLogger(__name__)

_KEPT_S: Final = 24 * 3600.0


def read_engine_counts(directory: Path) -> dict[str, Progress]:
    """Return the counts by request id. A file that cannot be read is logged and skipped."""
    found: dict[str, Progress] = {}
    for path in sorted(directory.glob("*.lost")):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            for request_id, num_prompt, num_cached, num_output in map(json.loads, lines):
                _, prompt, cached, output, _ = found.get(request_id, ("", 0, 0, 0, 0))
                found[request_id] = (
                    request_id,
                    max(prompt, int(num_prompt)),
                    max(cached, int(num_cached)),
                    output + int(num_output),
                    0,
                )
        except (OSError, ValueError, TypeError):
            logger.exception("skipped the unreadable token counts of a dead gateway in %s", path)
    return found


def sweep_engine_counts(directory: Path) -> None:
    """Remove files older than a day: their requests have been settled."""
    for path in directory.glob("*.lost"):
        if time.time() - path.stat().st_mtime > _KEPT_S:
            path.unlink(missing_ok=True)
