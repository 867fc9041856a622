"""Finds the engines of served models: on this host by the paths of sockets, on others by the
places of replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

from vinery_serving.core import errors
from vinery_serving.core.tasks import ALL_TASKS, Task, explanation
from vinery_serving.gateway.engines.models import (
    LoadedModel,
    ModelEntry,
    ModelState,
    Place,
    Targets,
    alias_of,
    draw,
)
from vinery_serving.gateway.engines.replicas import Replicas
from vinery_serving.gateway.engines.suspects import Quarantine, Suspects
from vinery_serving.output.detokenize import Decoder, Detokenizer
from vinery_serving.prompting.assets import ModelAssets, ModelFacts
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.transport import sockets
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.handshake import socket_key
from vinery_serving.transport.messages import Hello
from vinery_serving.transport.relayed import Key
from vinery_serving.transport.waiting import WaitingRequests

log = logging.getLogger(__name__)

# How long a request waits for an engine that loads or restarts, unless the settings differ. An
# engine that was killed is back sooner. A client that retries after this time has lost nothing.
ENGINE_WAIT_S: Final = 60.0
_WAIT_CHECK_S: Final = 0.5  # how often a waiting request checks whether the engine can still start
# How long the tokenizer of a model may load in this process, once its files are read.
_LOAD_S: Final = 60.0
# The model of a request that names none: an alias or a model of this name, or else the only one.
DEFAULT_MODEL: Final = "default"


class Engine(LoadedModel):
    """A served model of a web process, and the connections to its engine processes."""

    def __init__(
        self,
        entry: ModelEntry,
        assets: ModelAssets,
        replicas: Replicas,
        quarantine: Quarantine,
        suspects: Suspects,
        waiting: WaitingRequests,
        wait_s: float = ENGINE_WAIT_S,
    ) -> None:
        """`waiting` tells the node of waiting requests; a request waits at most `wait_s`."""
        super().__init__(entry, assets)
        self.replicas, self._waiting, self._wait_s = replicas, waiting, wait_s
        self.quarantine, self.suspects = quarantine, suspects
        self._chat_decoders = _detokenizer(assets, self.family.parser.special_texts)
        self._raw_decoders = _detokenizer(assets, frozenset())
        self._all_tokens_decoders = Detokenizer(assets.tokenizer.raw, frozenset())
        self._num_waiting = 0
        self.is_failing = False  # the process fails again and again
        self.is_asleep = False  # no process until a request comes
        self.is_gone = False  # the model was unloaded or changed: no new connection
        # Takes over the requests after a change of options; None: no such change.
        self.successor: Engine | None = None
        # Has the engine with the former settings, which serves until this engine is connected.
        self.former: Engine | None = None

    @property
    def with_former(self) -> Sequence[Engine]:
        return (self,) if self.former is None else (self, self.former)

    @property
    def serving(self) -> Engine:
        """The former engine while only that is connected, else this engine."""
        if self.replicas.is_connected or self.former is None:
            return self
        return self.former if self.former.replicas.is_connected else self

    def new_decoder(
        self, *, is_raw: bool, shows_special: bool = False, after: Sequence[int] = ()
    ) -> Decoder:
        """Return a decoder for one choice, whose text continues that of the tokens `after`. Answers
        to raw prompts have no special tokens, unless `shows_special`."""
        if shows_special:
            return self._all_tokens_decoders.new_decoder(after)
        return (self._raw_decoders if is_raw else self._chat_decoders).new_decoder(after)

    async def ready(self, *, goes_on: bool = False) -> tuple[Engine, Hello]:
        """Return this engine or a successor, once connected, and the engine's first message. A
        request that `goes_on` waits for as long as the model may take to load, and takes no place
        in the queue. Raises `ModelNotReady` after the time, or when the engine cannot start any
        more, and `Overloaded` while too many requests wait."""
        engine = self
        while True:
            try:
                return engine, await engine._wait(goes_on=goes_on)
            except errors.ModelNotReady:
                if engine.successor is None:
                    raise
                engine = engine.successor

    async def _wait(self, *, goes_on: bool) -> Hello:
        if self.replicas.is_connected and self.replicas.hello is not None:
            return self.replicas.hello
        options = self.entry.options
        if goes_on:
            return await self._wait_connected(max(self._wait_s, options.load_timeout_s))
        if self._num_waiting >= options.max_waiting:
            raise errors.Overloaded(
                "The model is starting and its queue is full; try again shortly."
            )
        self._num_waiting += 1
        try:
            return await self._wait_connected(self._wait_s)
        finally:
            self._num_waiting -= 1

    async def _wait_connected(self, timeout_s: float) -> Hello:
        with self._waiting.of(self.entry.id):
            while timeout_s > 0:
                if self.is_gone:
                    name = self.entry.name
                    raise errors.ModelNotReady(f"The model {name} is not loaded any more.")
                if self.is_failing:
                    raise _failed(self.entry.name)
                with suppress(TimeoutError):
                    return await self.replicas.wait_connected(min(timeout_s, _WAIT_CHECK_S))
                timeout_s -= _WAIT_CHECK_S
        raise errors.ModelNotReady(f"The model {self.entry.name} is not ready yet.")


# Reads the files of a model in a process that may be killed. Raises `UnusableFolder` for files that
# cannot be used, and `ServingError` if reading may work later.
ReadFacts = Callable[[ModelEntry], Awaitable[ModelFacts]]


class LocalDirectory:
    def __init__(
        self,
        run_dir: Path,
        secret: bytes,
        read: ReadFacts,
        quarantine: Quarantine | None = None,
        wait_s: float = ENGINE_WAIT_S,
        on_change: Callable[[], None] = lambda: None,
        context: Key | None = None,
    ) -> None:
        """`on_change` is called when a model has loaded. `context` returns what other hosts ask
        for; None: there are none."""
        self._context, self._run_dir, self._secret, self._read = context, run_dir, secret, read
        self._on_change, self._wait_s = on_change, wait_s
        self._waiting = WaitingRequests(run_dir, socket_key(secret, sockets.node_socket(run_dir)))
        self.quarantine = quarantine or Quarantine()
        self.entries: Mapping[str, ModelEntry] = {}  # all served models, by name
        self._has_hidden = False  # whether some projects do not see all models
        self.aliases: Mapping[str, Targets] = {}  # by their own names
        self._dice = Random()
        # All by the ids of models.
        self._engines: dict[int, Engine] = {}
        self._loads: dict[int, tuple[ModelEntry, asyncio.Task[None]]] = {}
        self.failures: dict[int, str] = {}  # why the files of these entries are unusable
        self._failing: Set[str] = frozenset()
        self._asleep: Set[str] = frozenset()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="models")
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def engines(self) -> Iterable[Engine]:
        return self._engines.values()

    def find(
        self,
        name: str | None,
        may_use: Callable[[str], bool] = lambda name: True,
        tasks: Set[Task] = ALL_TASKS,
        project_id: int | None = None,
    ) -> Engine:
        """Return the engine of a model that does one of `tasks`, or of a target of an alias. The
        name None means the alias `default` if a target does one of `tasks`, or else the only model.
        A model that the project does not see does not exist. A caller who may not use an alias by
        name gets a target that the caller may use. Raises `ModelNotFound`, `ModelNotReady`,
        `MissingParameter`, or `InvalidRequest` for a model that does something else."""
        visible = self.entries_of(project_id)
        name = self.named(name, tasks, project_id)
        entry = self._entry(self._target(name, may_use, visible), tasks, visible)
        if entry.task not in tasks:
            raise errors.InvalidRequest(
                f"The model {entry.name} {explanation(entry.task)}. GET /v1/models lists the "
                "others, with their tasks.",
                param="model",
            )
        engine = self.engine_of(entry)
        if engine is not None and engine.serving.entry.task in tasks:
            return engine.serving
        if not entry.is_loaded:
            raise errors.ModelNotReady(f"The model {entry.name} is not loaded.")
        if entry.id in self.failures:
            raise _failed(entry.name)
        raise errors.ModelNotReady(f"The model {entry.name} is not ready yet.")

    def entries_of(self, project_id: int | None) -> Mapping[str, ModelEntry]:
        """Return the models that keys of a project see, by name; None: no project."""
        if not self._has_hidden:
            return self.entries
        entries = self.entries.items()
        return {name: entry for name, entry in entries if entry.is_visible_to(project_id)}

    def named(self, name: str | None, tasks: Set[Task], project_id: int | None) -> str | None:
        """Return the name. None becomes `default` if that alias has a model that does one of
        `tasks`."""
        if name is not None or DEFAULT_MODEL not in self.aliases:
            return name
        targets = self.targets_of(DEFAULT_MODEL, self.entries_of(project_id))
        return DEFAULT_MODEL if any(self.entries[each].task in tasks for each in targets) else None

    def _target(
        self, name: str | None, may_use: Callable[[str], bool], visible: Mapping[str, ModelEntry]
    ) -> str | None:
        alias = None if name in visible else alias_of(name, self.aliases)
        targets = {} if alias is None else self.targets_of(alias, visible)
        if alias is None or not targets:
            return name  # a model's own name, or all models of the alias were removed
        if not may_use(alias):
            targets = {each: targets[each] for each in targets if may_use(each)} or targets
        return draw(targets, self._can_answer, self._dice)

    def targets_of(self, alias: str, visible: Mapping[str, ModelEntry]) -> Targets:
        return {name: weight for name, weight in self.aliases[alias].items() if name in visible}

    def _can_answer(self, name: str) -> bool:
        return self.state_of(self.entries[name]).can_answer

    def engine_of(self, entry: ModelEntry) -> Engine | None:
        """Return the engine of a model; None if it is not loaded, or its files are not read."""
        return self._engines.get(entry.id)

    def state_of(self, entry: ModelEntry) -> ModelState:
        engine = self.engine_of(entry)
        if engine is None:
            if not entry.is_loaded:
                return ModelState.NOT_LOADED
            return ModelState.FAILED if entry.id in self.failures else ModelState.LOADING
        if engine.serving.replicas.is_connected:
            return ModelState.LOADED
        if engine.is_failing:
            return ModelState.FAILED
        return ModelState.ASLEEP if engine.is_asleep else ModelState.LOADING

    async def update(
        self,
        entries: Mapping[str, ModelEntry],
        failing: Set[str] = frozenset(),
        aliases: Mapping[str, Targets] = MappingProxyType({}),
        asleep: Set[str] = frozenset(),
    ) -> None:
        """Replace the list of models and aliases at once. New models and those with other files
        load meanwhile: see `settle`. Until then a model serves with its former settings. `failing`
        names the models whose engines fail again and again, `asleep` the models without an engine
        until a request comes."""
        if entries != self.entries:
            self.entries = dict(entries)
            self._has_hidden = any(entry.projects for entry in entries.values())
            self.failures.clear()
        self.aliases = dict(aliases)
        self._failing, self._asleep = failing, asleep
        loaded = {entry.id: entry for entry in entries.values() if entry.is_loaded}
        for id_ in [id_ for id_, (entry, _) in self._loads.items() if loaded.get(id_) != entry]:
            self._loads.pop(id_)[1].cancel()
        for id_ in self._engines.keys() - loaded:
            self._replace(self._engines.pop(id_), None)
        for entry in loaded.values():
            engine = self.engine_of(entry)
            if engine is None or not entry.has_files_of(engine.entry):
                self._begin_load(entry)
            elif engine.entry != entry:
                await self._put(entry, engine.assets)
        self._note_states()
        for engine in self._engines.values():
            # No node starts an engine with former settings again.
            if engine.former is not None and not engine.former.replicas.is_running:
                self._close(engine.former.replicas)
                engine.former = None

    async def settle(self, timeout_s: float | None = None) -> None:
        if tasks := [task for _, task in self._loads.values()]:
            await asyncio.wait(tasks, timeout=timeout_s)

    def _begin_load(self, entry: ModelEntry) -> None:
        if entry.id in self._loads or entry.id in self.failures:
            return
        if entry.places and not entry.folder.is_dir():
            return  # this host fetches the files
        task = asyncio.create_task(self._load(entry), name=f"load {entry.name}")
        self._loads[entry.id] = entry, task

    def _note_states(self) -> None:
        names = {entry.id: name for name, entry in self.entries.items()}
        for id_, engine in self._engines.items():
            engine.is_failing = names[id_] in self._failing
            engine.is_asleep = names[id_] in self._asleep

    def _close(self, replicas: Replicas) -> None:
        task = asyncio.create_task(replicas.close(), name="close-replicas")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        await self.update({})
        await asyncio.gather(*self._closing)
        await self._waiting.close()
        self._threads.shutdown(wait=False)

    async def _load(self, entry: ModelEntry) -> None:
        """Read the model's files, and let the model serve instead of its former version."""
        reason = ""
        try:
            facts = (await self._read(entry)).at(entry.folder)
            load = partial(ModelAssets.of, facts, is_frugal=True)
            async with asyncio.timeout(_LOAD_S):
                assets = await asyncio.get_running_loop().run_in_executor(self._threads, load)
            await self._put(entry, assets)
        except UnusableFolder as error:
            reason = str(error)
        except TimeoutError:
            reason = f"The tokenizer takes more than {_LOAD_S:.0f} s to load."
        except errors.ServingError as error:
            log.warning("model not read: %s", error, extra={"fields": {"model": entry.name}})
        except Exception as error:  # what a process that reads strange files says may be wrong
            log.exception("model not read", extra={"fields": {"model": entry.name}})
            reason = f"The files of the model have led to a {type(error).__name__}."
        del self._loads[entry.id]
        if reason:
            log.error("model unusable: %s", reason, extra={"fields": {"model": entry.name}})
            self.failures[entry.id] = reason
            former = self.engine_of(entry)
            # The node keeps the engine while the new files are unusable.
            if former is not None and not former.serving.replicas.is_connected:
                self._replace(self._engines.pop(entry.id), None)
        self._note_states()
        self._on_change()

    async def _put(self, entry: ModelEntry, assets: ModelAssets) -> None:
        """Let the model serve with these settings."""
        replaced = self.engine_of(entry)
        replicas = await self._replicas_of(entry, replaced)
        suspects = Suspects() if replaced is None else replaced.suspects
        self._engines[entry.id] = engine = Engine(
            *(entry, assets, replicas, self.quarantine, suspects),
            waiting=self._waiting,
            wait_s=self._wait_s,
        )
        if replaced is not None:
            self._replace(replaced, engine)

    def _replace(self, engine: Engine, successor: Engine | None) -> None:
        """Let `successor` take over from `engine`; None: the model is not loaded any more."""
        for each in engine.with_former:
            each.is_gone = True
            if successor is None:
                self._close(each.replicas)
                continue
            if successor.entry.folder == each.entry.folder:
                each.successor = successor
            if successor.replicas is each.replicas:
                continue
            if successor.former is None and each.replicas.is_connected:
                successor.former = each
            else:
                self._close(each.replicas)
        engine.former = None

    async def _replicas_of(self, entry: ModelEntry, replaced: Engine | None) -> Replicas:
        """Return the connections to the engines with these settings. A change that only web
        processes notice keeps the connections."""
        for engine in () if replaced is None else replaced.with_former:
            if engine.entry.settings_key == entry.settings_key:
                await engine.replicas.move(entry.engines)
                return engine.replicas

        def new_client(place: Place) -> EngineClient:
            engine = sockets.EngineAddress(entry.id, entry.settings_key, place.replica)
            if place.address and self._context is not None:
                host, _, port = place.address.rpartition(":")
                address = sockets.TlsAddress(host.strip("[]"), int(port), place.fingerprint, engine)
                return EngineClient(address, self._context)
            path = sockets.engine_socket(self._run_dir, engine)
            return EngineClient(sockets.UnixAddress(path), socket_key(self._secret, path))

        replicas = Replicas(new_client, entry.engines)
        replicas.open()
        return replicas

    def _entry(
        self, name: str | None, tasks: Set[Task], visible: Mapping[str, ModelEntry]
    ) -> ModelEntry:
        entry = visible.get(name) if name is not None else None
        if entry is not None:
            return entry
        if name not in (None, DEFAULT_MODEL):
            raise errors.ModelNotFound(
                f"The model `{name}` does not exist. GET /v1/models lists the models that can "
                "answer now.",
                param="model",
            )
        loaded = [each for each in visible.values() if each.is_loaded and each.task in tasks]
        if len(loaded) == 1:
            return loaded[0]
        raise errors.MissingParameter(
            f"`model` is required: {len(loaded)} models are loaded. GET /v1/models?all=true lists "
            "all models with their states.",
            param="model",
        )


def _failed(name: str) -> errors.ModelNotReady:
    return errors.ModelNotReady(
        f"The model {name} failed to load. Ask an administrator of this server: they see why."
    )


def _detokenizer(assets: ModelAssets, kept: frozenset[str]) -> Detokenizer:
    """A detokenizer that drops special tokens except `kept`, and always the end tokens."""
    tokenizer = assets.tokenizer
    special = Detokenizer.keeping(tokenizer.raw, tokenizer.facts.special_texts, kept)
    return Detokenizer(tokenizer.raw, special.dropped_ids | tokenizer.facts.eos_ids)
