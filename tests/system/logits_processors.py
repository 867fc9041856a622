"""Logits processors as an administrator would write them, one badly."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def only_token(args: Mapping[str, Any]) -> Callable[[Sequence[int], np.ndarray], None] | None:
    """Concerned by requests with `only_token`: makes every other token impossible."""
    if "only_token" not in args:
        return None
    token_id = int(args["only_token"])

    def process(_token_ids: Sequence[int], logits: np.ndarray) -> None:
        value = logits[token_id]
        logits.fill(-np.inf)
        logits[token_id] = value

    return process


def endless(args: Mapping[str, Any]) -> Callable[[Sequence[int], np.ndarray], None] | None:
    """Concerned by requests with `endless`: never returns."""
    if "endless" not in args:
        return None

    def process(_token_ids: Sequence[int], _logits: np.ndarray) -> None:
        while True:
            pass

    return process
