"""Served models, as `serving` provides them: names, projects, and whether chats are answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from django.core.exceptions import ValidationError

if TYPE_CHECKING:
    from vinery_accounts.access.access import Access


@dataclass(frozen=True, slots=True)
class Served:
    """A model or an alias. `is_for_chats`: whether its task is to answer chats. `answers_chats`:
    whether a chat is answered now, perhaps after the model has woken."""

    name: str
    project_ids: Sequence[int] = ()  # empty: all
    is_alias: bool = False
    is_for_chats: bool = False
    answers_chats: bool = False
    row_id: int | None = None
    state: str = ""
    reason: str = ""  # of a failure, for administrators


_readers: Final[list[Callable[[], Sequence[Served]]]] = []


def provide(read: Callable[[], Sequence[Served]]) -> None:
    """Let accounts read the served models, those that are ready first."""
    _readers[:] = [read]


def visible_models(access: Access, models: list[Served] | None = None) -> list[Served]:
    """Return what a person, or a key, may know of: administrators everything, others what keys of
    their projects see. Pages, answers and errors name nothing else."""
    found = served_to(None) if models is None else models
    if access.is_superuser or not any(each.project_ids for each in found):
        return found
    own = access.project_ids()
    return [each for each in found if not each.project_ids or own & set(each.project_ids)]


def served_to(project_id: int | None) -> list[Served]:
    """Return what keys of a project see; None: everything."""
    return [
        each
        for each in (_readers[0]() if _readers else ())
        if project_id is None or not each.project_ids or project_id in each.project_ids
    ]


def for_example(models: Iterable[Served]) -> str:
    """Return the name of the model for an example of a chat: one that answers now, else the first
    that could; empty if there is none."""
    found = sorted(
        (each for each in models if each.is_for_chats), key=lambda k: not k.answers_chats
    )
    return found[0].name if found else ""


def check_models(
    column: str, names: Iterable[str], project_id: int | None = None, *, takes_aliases: bool = True
) -> None:
    """Raise ValidationError for a name without a model or alias. Before the first model, any name
    is right."""
    served = {each.name: each for each in served_to(project_id)}
    for name in names if served else ():
        if name not in served:
            near = get_close_matches(name, served, 1)
            hint = f"Did you mean {near[0]}?" if near else "Add the model first."
            raise ValidationError({column: f"No model or alias has the name {name}. {hint}"})
        if served[name].is_alias and not takes_aliases:
            raise ValidationError({column: f"{name} is an alias: name one of its models."})
