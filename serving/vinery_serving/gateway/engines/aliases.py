"""Divides the requests of an alias between its models, by weights and by what can answer."""

from collections.abc import Callable, Collection, Mapping
from random import Random

Targets = Mapping[str, int]  # weights by the names of models


def alias_of(name: str | None, aliases: Collection[str]) -> str | None:
    """Return the alias that a name stands for: its own, or else the longest of those that end in
    `*` and begin as the name does."""
    if name is None or name in aliases:
        return name
    patterns = (each for each in aliases if each[-1:] == "*" and name.startswith(each[:-1]))
    return max(patterns, key=len, default=None)


def draw(targets: Targets, can_answer: Callable[[str], bool], dice: Random) -> str:
    """Return one of the targets, of which there is at least one.

    Those that can answer come first, and among them those with a weight. If none can, one is drawn
    whose request will wait or get its error.
    """
    able = [name for name in targets if can_answer(name)] or list(targets)
    weights = [targets[name] for name in able]
    return dice.choices(able, weights if any(weights) else None)[0]
