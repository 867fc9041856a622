"""The token counts of finished generations, for gateways that die or use fewer tokens. When a
connection is lost, the engine writes the counts of its generations to a file beside the journals,
which `vinery_accounts/usage/recovery` reads. The disk space of this file is allocated before it is
needed, for a disk that is full by then."""

import contextlib
import fcntl
import json
import logging
import os
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Final

from vinery_serving.core.events import TokenCounts
from vinery_serving.engine.generation import Generation

logger = logging.getLogger(__name__)

# A journal is at most some seconds behind, in which fewer generations finish.
_MAX_FINISHED: Final = 10_000
_RESERVED_BYTES: Final = 1024 * 1024


class FinishedGenerations:
    def __init__(self, usage_dir: Path | None) -> None:
        """`usage_dir` has the gateways' usage journals; None: there are none."""
        self._usage_dir = usage_dir
        # With the ids of the requests.
        self._counts: OrderedDict[tuple[int, int], tuple[str, TokenCounts]] = OrderedDict()
        self._num_files = 0
        self._draft: _Draft | None = None
        self._allocate_draft()

    def add(self, generation: Generation) -> None:
        tokens = TokenCounts(
            num_prompt_tokens=len(generation.prompt_ids),
            num_cached_tokens=generation.num_cached or 0,
            num_output_tokens=len(generation.tokens),
        )
        submit = generation.submit
        self._counts[id(generation.connection), submit.id] = submit.request_id, tokens
        if len(self._counts) > _MAX_FINISHED:
            self._counts.popitem(last=False)

    def take_unused(self, connection: object, id_: int, num_used: int) -> int:
        """Return how many tokens of a finished generation were not used, and uncount them."""
        key = id(connection), id_
        if key not in self._counts:
            return 0
        request_id, tokens = self._counts[key]
        num_unused = max(0, tokens.num_output_tokens - num_used)
        num_used = tokens.num_output_tokens - num_unused
        self._counts[key] = request_id, replace(tokens, num_output_tokens=num_used)
        return num_unused

    def write_lost(self, connection: object) -> None:
        keys = [key for key in self._counts if key[0] == id(connection)]
        lost = [self._counts.pop(key) for key in keys]
        used = [
            [id_, tokens.num_prompt_tokens, tokens.num_cached_tokens, tokens.num_output_tokens]
            for id_, tokens in lost
            if id_ and tokens.num_output_tokens
        ]
        if not used or self._usage_dir is None:
            return
        self._num_files += 1
        path = self._usage_dir / f"{os.getpid()}-{self._num_files}.lost"
        lines = "".join(json.dumps(each) + "\n" for each in used).encode()
        draft, self._draft = self._draft, None
        try:
            if draft is None or not draft.become(path, lines):
                path.write_bytes(lines)
        except OSError as error:
            logger.error("lost usage not written path=%s error=%s", path, error)
        self._allocate_draft()

    def _allocate_draft(self) -> None:
        if self._usage_dir is not None:
            name = f"engine-{os.getpid()}-{self._num_files}.draft"
            with contextlib.suppress(OSError):  # without it the file is written to free space
                self._draft = _Draft(self._usage_dir / name)


class _Draft:
    """An empty file with disk space. Recovery removes the file when the engine's lock is gone."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and then there is no file."""
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._fd, 0, _RESERVED_BYTES)
        except OSError:
            os.close(self._fd)
            path.unlink(missing_ok=True)
            raise

    def become(self, path: Path, content: bytes) -> bool:
        """Write the content, and give the file this name. Returns False if that failed."""
        try:
            if os.pwrite(self._fd, content, 0) < len(content):
                return False
            os.ftruncate(self._fd, len(content))
            self._path.rename(path)
        except OSError:
            return False
        finally:
            os.close(self._fd)
        return True
