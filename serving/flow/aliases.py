"""Divides the requests of an alias between its models, by weights and by what can answer."""

from collections.abc import Callable, Mapping
from random import Random

Targets = Mapping[str, int]  # weights by the names of models


def draw(targets: Targets, can_answer: Callable[[str], bool], dice: Random) -> str:
    """Return one of the targets, of which there is at least one.

    Those that can answer come first, and among them those with a weight. If none can, one is drawn
    whose request will wait or get its error.
    """
    able = [name for name in targets if can_answer(name)] or list(targets)
    weights = [targets[name] for name in able]
    return dice.choices(able, weights if any(weights) else None)[0]
