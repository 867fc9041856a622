"""What generations have made, for as long as somebody may ask.

A gateway that is killed takes with it what it knew of its requests since the last second.
The engine knows it too: when a connection is lost, it writes down how many tokens each of its
requests had, for whoever closes the gateway's books (`accounts.usage.lost` reads it).
"""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serving.engine.generation import Generation

logger = logging.getLogger(__name__)

# Of generations that have ended so many are remembered: the books of a gateway are never
# further behind than those of some seconds.
_MAX_ENDED: Final = 10_000


@dataclass(slots=True)
class _Made:
    connection: int
    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int


class Ended:
    """By connection and id."""

    def __init__(self, directory: Path | None) -> None:
        """`directory` None: nobody keeps books."""
        self._directory = directory
        self._made: OrderedDict[tuple[int, int], _Made] = OrderedDict()
        self._num_files = 0

    def add(self, generation: Generation) -> None:
        """It has ended."""
        self._made[id(generation.connection), generation.submit.id] = _made(generation)
        if len(self._made) > _MAX_ENDED:
            self._made.popitem(last=False)

    def num_unused(self, connection: object, id_: int, num_used: int) -> int:
        """How many tokens of a generation that has ended its gateway has not used; they are
        counted no more."""
        made = self._made.get((id(connection), id_))
        if made is None:
            return 0
        num_unused = max(0, made.num_output_tokens - num_used)
        made.num_output_tokens -= num_unused
        return num_unused

    def lose(self, connection: object) -> None:
        """The connection broke, and all that ran on it has ended."""
        mine = [key for key, made in self._made.items() if made.connection == id(connection)]
        lost = [self._made.pop(key) for key in mine]
        lines = [_line(each) for each in lost if each.request_id and each.num_output_tokens]
        if not lines or self._directory is None:
            return
        self._num_files += 1
        path = self._directory / f"{os.getpid()}-{self._num_files}.lost"
        try:
            path.write_text("".join(lines), encoding="utf-8")
        except OSError as error:
            logger.error("cannot write what a lost gateway had used to %s: %s", path, error)


def _made(generation: Generation) -> _Made:
    return _Made(
        id(generation.connection),
        generation.submit.request_id,
        len(generation.prompt_ids),
        generation.num_cached or 0,
        len(generation.tokens),
    )


def _line(made: _Made) -> str:
    counts = (made.num_prompt_tokens, made.num_cached_tokens, made.num_output_tokens)
    return json.dumps([made.request_id, *counts]) + "\n"
