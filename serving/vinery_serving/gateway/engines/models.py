"""Served models and aliases, as any process of the gateway sees them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Self

from vinery_serving.core.tasks import Task
from vinery_serving.engine.options import EngineOptions
from vinery_serving.grammars.families.registry import select_family
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.folder import GenerationDefaults
from vinery_serving.prompting.pooling_folder import PoolingFolder

_FIELD_NAMES: Final = {"max_tokens": "max_new_tokens"}
Targets = Mapping[str, int]  # weights by the names of models


def alias_of(name: str | None, aliases: Collection[str]) -> str | None:
    """Return the alias of this name, or else the longest alias with `*` that matches."""
    if name is None or name in aliases:
        return name
    patterns = (each for each in aliases if each[-1:] == "*" and name.startswith(each[:-1]))
    return max(patterns, key=len, default=None)


def draw(targets: Targets, can_answer: Callable[[str], bool], dice: Random) -> str:
    """Return a random target; there is at least one. Targets that can answer come first, and among
    them targets with a weight. If no target can answer, the request waits or gets the error of the
    drawn target."""
    able = [name for name in targets if can_answer(name)] or list(targets)
    weights = [targets[name] for name in able]
    return dice.choices(able, weights if any(weights) else None)[0]


class Place(NamedTuple):
    replica: int
    address: str = ""  # host and port; empty: this host
    fingerprint: str = ""  # of the host's certificate


@dataclass(frozen=True, slots=True)
class ModelEntry:
    id: int
    name: str
    folder: Path
    options: EngineOptions
    is_loaded: bool
    created_at: datetime
    updated_at: datetime
    task: Task = Task.CHAT
    projects: frozenset[int] = frozenset()  # whose keys see and use the model; empty: all keys
    settings_key: str = ""  # names the settings of the engines
    num_replicas: int = 1
    places: tuple[Place, ...] = ()  # of its engines, of several hosts; empty: all are here

    @property
    def read_paths(self) -> Sequence[Path]:
        """The folder, and the file of a template that is elsewhere."""
        template = self.options.chat_template
        return (self.folder, Path(template)) if template.startswith("/") else (self.folder,)

    @property
    def engines(self) -> Sequence[Place]:
        return self.places or [Place(number) for number in range(self.num_replicas)]

    def has_files_of(self, other: Self) -> bool:
        """Whether the files of a loaded model need not be read again."""
        files = (self.folder, self.options.chat_template, self.settings_key, self.task)
        return files == (other.folder, other.options.chat_template, other.settings_key, other.task)

    def is_visible_to(self, project_id: int | None) -> bool:
        """Whether keys of a project see the model; None: a caller without a project."""
        return not self.projects or project_id in self.projects


class ModelState(StrEnum):
    """Whether a model can answer. The first and the last word are LM Studio's."""

    LOADED = "loaded"
    ASLEEP = "asleep"  # loads for the next request
    LOADING = "loading"
    FAILED = "failed"
    NOT_LOADED = "not-loaded"

    @property
    def can_answer(self) -> bool:
        return self in (ModelState.LOADED, ModelState.ASLEEP)


class LoadedModel:
    """A served model: its tokenizer and templates, in any process."""

    # Whether this process serves one client at a time and may be killed. Only such a process may
    # run templates that came with a request.
    is_isolated = False

    def __init__(self, entry: ModelEntry, assets: ModelAssets) -> None:
        self.entry, self.assets = entry, assets
        self.family = select_family(entry.options.output_format, assets.template_text)
        tags = self.family.parser.reasoning
        usual = ModelAssets.reasoning_tags
        assets.reasoning_tags = usual if tags is None else (tags.open.text, tags.close.text)

    @property
    def pooling(self) -> PoolingFolder:
        """How an embeddings or rerank model is used."""
        assert self.assets.pooling is not None, "the model generates text"
        return self.assets.pooling

    @cached_property
    def defaults(self) -> GenerationDefaults:
        return defaults_of(self.entry.options, self.assets.folder.defaults)

    @property
    def max_context(self) -> int | None:
        """Prompt and output tokens together; None: unknown."""
        if not self.entry.task.is_generation:
            return self.entry.options.max_context or self.pooling.max_tokens
        return self.entry.options.context_of(self.assets.folder.max_context)


def defaults_of(options: EngineOptions, folder: GenerationDefaults) -> GenerationDefaults:
    named = {} if options.defaults is None else options.defaults.named
    values = {_FIELD_NAMES.get(name, name): value for name, value in named.items()}
    if "temperature" in values:
        values["do_sample"] = True
    return replace(folder, **values)  # type: ignore[arg-type]
