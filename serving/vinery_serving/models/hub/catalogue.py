"""The catalogue: ready-made models that `vinery model pull NAME` fetches and serves.

The entries are in `catalogue.toml`. Sizes are from the hub's pages, or follow from the number of
parameters; `check` compares all entries with a hub.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vinery_serving.core.tasks import Task
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.machine import CONTEXT_TOKENS, Machine, MemoryNeed, need_of
from vinery_serving.models.hub.repository import Format, format_of, needed_files
from vinery_serving.models.hub.verdict import gigabytes

Ability = Literal["tools", "thinking", "vision"]


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """An entry. A model that ships with Vinery has no repository."""

    name: str
    task: Task
    parameters: float  # in billions
    precision: str
    size_gb: float
    licence: str
    context: int  # tokens
    kv_kb: float  # of a token
    abilities: tuple[Ability, ...]
    repository: str = ""
    shipped: bool = False

    @property
    def size_bytes(self) -> int:
        return round(self.size_gb * 1e9)

    @property
    def need(self) -> MemoryNeed:
        tokens = min(CONTEXT_TOKENS, self.context)
        return need_of(self.size_bytes, round(self.kv_kb * 1000), tokens)

    def fits(self, machine: Machine) -> bool:
        size_bytes = 0 if self.shipped else self.size_bytes
        has_memory = self.need.total_bytes <= machine.memory_bytes
        return has_memory and size_bytes <= machine.free_disk_bytes


@cache
def catalogue() -> tuple[CatalogueModel, ...]:
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["model"], tuple[CatalogueModel, ...])


def find(name: str) -> CatalogueModel | None:
    return next((each for each in catalogue() if each.name == name), None)


def check(hub: Hub) -> Iterator[dict[str, str]]:
    """Compare the entries with a hub, one after the other. Raises `HubUnavailable`."""
    for model in catalogue():
        if not model.shipped:
            problem = _problem(hub, model)
            yield {"name": model.name, "repository": model.repository, "problem": problem}


def _problem(hub: Hub, model: CatalogueModel) -> str:
    try:
        found = hub.repository(model.repository)
    except HubUnavailable:
        raise
    except PullFailed as error:
        return str(error)
    if format_of(found) is not Format.OPENVINO:
        return f"It is no OpenVINO model: its format is {format_of(found)}."
    size_bytes = needed_files(found).size_bytes
    if abs(size_bytes - model.size_bytes) > 0.2 * model.size_bytes:
        return f"It has {gigabytes(size_bytes)}, and the catalogue names {model.size_gb:g} GB."
    if found.licence not in (model.licence, None):
        return f"Its licence is {found.licence}, and the catalogue names {model.licence}."
    return ""
