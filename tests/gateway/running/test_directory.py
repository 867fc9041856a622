"""The model that a request names, and the engine that answers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from random import Random
from ssl import SSLContext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import until_in_loop as until
from tests.fakes.engine import KEY, FakeEngine, Gateway
from tests.gateway.running.tiny_chat import NOW, TINY_CHAT, new_engine
from vinery_serving.core.errors import MissingParameter, ModelNotFound, ModelNotReady
from vinery_serving.core.tasks import GENERATION_TASKS, POOLING_TASKS, Task
from vinery_serving.engine.options import EngineOptions
from vinery_serving.gateway.engines.directory import Engine, LocalDirectory
from vinery_serving.gateway.engines.models import ModelEntry, ModelState, Place, draw
from vinery_serving.prompting.assets import ModelAssets, ModelFacts
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.sockets import EngineAddress, TlsAddress, UnixAddress

LATER = datetime(2026, 1, 2, tzinfo=UTC)
LOADED = ModelEntry(1, "a", TINY_CHAT, EngineOptions(), True, NOW, NOW)
OTHER = replace(LOADED, id=2, name="b")
UNLOADED = replace(LOADED, id=3, name="c", is_loaded=False)


async def facts_of(entry: ModelEntry) -> ModelFacts:
    return ModelAssets.load(entry.folder).facts


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[LocalDirectory]:
    directory = LocalDirectory(tmp_path, KEY, facts_of)
    yield directory
    await directory.close()


async def loaded(directory: LocalDirectory, *values: Any, **named: Any) -> None:
    await directory.update(*values, **named)
    await directory.settle()


async def serve(directory: LocalDirectory, *entries: ModelEntry) -> None:
    await loaded(directory, {entry.name: entry for entry in entries})


async def test_the_only_loaded_model_need_not_be_named_but_an_unknown_name_does_not_mean_it(
    directory,
):
    await serve(directory, LOADED, UNLOADED)
    assert directory.find(None).entry == directory.find("default").entry == LOADED
    with pytest.raises(ModelNotFound):
        directory.find("null")
    with pytest.raises(ModelNotReady):
        directory.find("c")
    await serve(directory, LOADED, replace(OTHER, name="default"))
    assert directory.find("default").entry.id == OTHER.id


async def test_with_several_models_or_none_the_error_names_the_field_and_the_list(directory):
    for entries, name in product([(UNLOADED,), (LOADED, OTHER)], [None, "default"]):
        await serve(directory, *entries)
        with pytest.raises(MissingParameter, match=r"required: [02] models .* lists all") as caught:
            directory.find(name)
        assert caught.value.param == "model"


async def test_models_are_served_under_names_that_others_had(directory):
    await serve(directory, LOADED, OTHER)

    await serve(directory, replace(LOADED, name="b"), replace(OTHER, name="c"))
    assert (directory.find("b").entry.id, directory.find("c").entry.id) == (1, 2)
    with pytest.raises(ModelNotFound):
        directory.find("a")

    await serve(directory, LOADED)
    await serve(directory, replace(LOADED, id=2))
    assert directory.find("a").entry.id == 2


async def test_only_a_model_whose_engine_is_connected_is_in_the_state_loaded(directory):
    broken = replace(LOADED, id=4, name="d", folder=TINY_CHAT / "none")
    elsewhere = replace(broken, id=5, name="e", places=(Place(0, "[::1]:8001", "f"),))
    await serve(directory, LOADED, UNLOADED, broken, elsewhere)
    engine = directory.find("a")

    assert directory.state_of(LOADED) is directory.state_of(elsewhere) is ModelState.LOADING
    assert directory.state_of(UNLOADED) is ModelState.NOT_LOADED
    assert directory.state_of(broken) is ModelState.FAILED
    await loaded(directory, {"a": LOADED}, frozenset({"a"}))
    assert directory.state_of(LOADED) is ModelState.FAILED
    async with FakeEngine(engine.replicas.path, until_left, key=engine.replicas.clients[0].key):
        await engine.replicas.wait_connected(30)
        assert directory.state_of(LOADED) is ModelState.LOADED


ALIASES = {"chat": {"a": 1, "b": 0, "gone": 5}, "orphan": {"gone": 1}}


async def test_an_alias_stands_for_a_model_that_is_served_until_it_is_removed(
    directory, monkeypatch
):
    await loaded(directory, {"a": LOADED, "b": OTHER}, aliases=ALIASES)
    assert {directory.find("chat").entry.name for _ in range(20)} == {"a"}
    with pytest.raises(ModelNotFound, match="`orphan` does not exist"):
        directory.find("orphan")
    # A caller gets a permitted model.
    for allowed, expected in (({"chat"}, "a"), ({"b"}, "b"), ({"chat", "b"}, "a"), (set(), "a")):
        assert directory.find("chat", allowed.__contains__).entry.name == expected

    # A loaded model answers before an unloaded model.
    (ready,) = directory.find("b").replicas.clients
    monkeypatch.setattr(EngineClient, "is_connected", property(lambda self: self is ready))
    assert directory.find("chat").entry == OTHER

    await serve(directory, LOADED, OTHER)
    with pytest.raises(ModelNotFound):
        directory.find("chat")


async def test_an_alias_that_ends_in_a_star_stands_for_all_names_that_begin_so(directory):
    patterns = {"claude-*": {"a": 1}, "claude-haiku-*": {"b": 1}, "c*": {"b": 1}, "cl": {"b": 1}}
    await loaded(directory, {"a": LOADED, "b": OTHER}, aliases=patterns)
    for name, expected in {
        "claude-sonnet-5": "a",
        "claude-": "a",
        "claude-*": "a",
        "claude-haiku-4-5": "b",
        "claude": "b",
        "cl": "b",
        "a": "a",
    }.items():
        assert directory.find(name).entry.name == expected, name
    for allowed, name in (({"claude-*"}, "a"), ({"b"}, "a")):
        assert directory.find("claude-opus", allowed.__contains__).entry.name == name
    with pytest.raises(ModelNotFound, match="`Claude-1` does not exist"):
        directory.find("Claude-1")

    # The name of a model comes first.
    await loaded(directory, {"a": LOADED, "b": OTHER}, aliases={"b*": {"a": 1}})
    assert [directory.find(name).entry.name for name in ("b", "b1")] == ["b", "a"]


async def test_a_request_without_a_model_means_the_alias_default_if_its_model_does_the_task(
    directory,
):
    embedder = replace(OTHER, id=5, name="e", task=Task.EMBEDDINGS, is_loaded=False)
    entries = {entry.name: entry for entry in (LOADED, OTHER, embedder)}
    await loaded(directory, entries, aliases={"default": {"b": 1}})
    assert directory.find(None, tasks=GENERATION_TASKS).entry == OTHER
    assert directory.find("default").entry == OTHER
    assert directory.named(None, POOLING_TASKS, None) is None
    await loaded(directory, entries, aliases={"default": {"gone": 1}})
    with pytest.raises(MissingParameter):
        directory.find(None, tasks=GENERATION_TASKS)


HIDDEN = replace(OTHER, projects=frozenset({7}))


async def test_a_model_of_other_projects_does_not_exist_for_a_caller_nor_for_its_alias(directory):
    entries = {entry.name: entry for entry in (LOADED, HIDDEN)}
    await loaded(directory, entries, aliases={"chat": {HIDDEN.name: 9, LOADED.name: 1}})
    assert directory.find(HIDDEN.name, project_id=7).entry == HIDDEN
    for project_id in (8, None):
        with pytest.raises(ModelNotFound):
            directory.find(HIDDEN.name, project_id=project_id)
        assert directory.find(None, project_id=project_id).entry == LOADED  # the only visible model
    with pytest.raises(MissingParameter):
        directory.find(None, project_id=7)
    names = {directory.find("chat", project_id=8).entry.name for _ in range(20)}
    assert names == {LOADED.name}
    await loaded(directory, entries, aliases={"chat": {HIDDEN.name: 1}})
    with pytest.raises(ModelNotFound, match="`chat` does not exist"):
        directory.find("chat", project_id=8)


async def test_restrictions_aliases_and_removals_apply_while_another_model_is_read(tmp_path):
    reads: dict[str, asyncio.Event] = {}
    names: list[str] = []

    async def read(entry: ModelEntry) -> ModelFacts:
        names.append(entry.name)
        if entry.name == "slow":
            event = reads[entry.options.chat_template] = asyncio.Event()
            try:
                await asyncio.Event().wait()
            finally:
                event.set()
        return await facts_of(entry)

    directory = LocalDirectory(tmp_path, KEY, read)
    slow = replace(LOADED, id=9, name="slow", options=EngineOptions(chat_template="1"))
    await directory.update({"slow": slow, "a": LOADED})
    for restricted in (LOADED, replace(LOADED, projects=frozenset({7}), updated_at=LATER)):
        entries = {"slow": slow, "a": restricted, "b": OTHER}
        await directory.update(entries, aliases={"chat": {"b": 1}})
        await until(lambda: len(list(directory.engines)) == 2)
    with pytest.raises(ModelNotFound):
        directory.find("a", project_id=8)
    assert directory.find("chat", project_id=8).entry == OTHER
    assert names == ["slow", "a", "b"]  # other rules need no other files
    with pytest.raises(ModelNotReady, match="not ready yet"):
        directory.find("slow")

    changed = replace(slow, options=EngineOptions(chat_template="2"))
    await directory.update({"slow": changed, "a": LOADED})
    await asyncio.wait_for(reads["1"].wait(), 60)
    with pytest.raises(ModelNotFound):
        directory.find("b")
    await until(lambda: "2" in reads)
    await directory.update({"a": LOADED})
    await asyncio.wait_for(reads["2"].wait(), 60)
    await directory.close()


async def test_an_unreadable_model_is_failed_with_the_reason_and_read_again_after_a_change(
    tmp_path,
):
    reasons = ["It never ends.", "It is cut.", ""]

    async def read(entry: ModelEntry) -> ModelFacts:
        if reason := reasons.pop(0):
            raise UnusableFolder(reason)
        return await facts_of(entry)

    directory = LocalDirectory(tmp_path, KEY, read)
    for _ in range(2):
        await loaded(directory, {"a": LOADED})
        assert directory.state_of(LOADED) is ModelState.FAILED
        assert directory.failures[LOADED.id] == "It never ends."
    with pytest.raises(ModelNotReady, match="failed to load"):
        directory.find("a")
    await loaded(directory, {"a": replace(LOADED, updated_at=LATER)})
    assert directory.failures == {LOADED.id: "It is cut."}
    await serve(directory, LOADED)
    assert not directory.failures
    assert directory.find("a").entry == LOADED
    await directory.close()


async def until_left(gateway: Gateway) -> None:
    with suppress(EOFError):
        while True:
            await gateway.receive()


FIRST = replace(LOADED, settings_key="1" * 12)
SECOND = replace(LOADED, folder=TINY_CHAT.parent / "tiny-draft", settings_key="2" * 12)


@asynccontextmanager
async def engine_of(directory: LocalDirectory) -> AsyncIterator[Engine]:
    """An engine with the newest settings serves."""
    (engine,) = directory.engines
    async with FakeEngine(engine.replicas.path, until_left, key=engine.replicas.clients[0].key):
        await engine.replicas.wait_connected(30)
        yield engine


async def test_the_engine_of_former_settings_serves_until_the_new_one_does(directory):
    await serve(directory, FIRST)
    async with engine_of(directory) as first:
        # A change that only web processes notice keeps the connection.
        await serve(directory, replace(FIRST, updated_at=LATER))
        changed = directory.find("a")
        assert changed is not first
        assert (await changed.ready())[0] is changed
        assert (await first.ready())[1] is changed.replicas.hello

        await serve(directory, SECOND)
        assert directory.find("a") is changed
        assert directory.state_of(SECOND) is ModelState.LOADED
        async with engine_of(directory) as second:
            assert second is not changed
            assert directory.find("a") is second


async def test_a_new_version_that_never_loads_leaves_the_former_one_in_service(directory):
    await serve(directory, FIRST)
    async with engine_of(directory) as first:
        await loaded(directory, {"a": SECOND}, failing={"a"})
        third = replace(SECOND, settings_key="3" * 12)
        await loaded(directory, {"a": third}, failing={"a"})
        assert directory.find("a") is first

        await serve(directory, FIRST)
        assert directory.find("a").replicas is first.replicas


async def test_a_new_version_whose_files_cannot_be_read_leaves_the_former_one_in_service(
    directory, tmp_path
):
    await serve(directory, FIRST)
    async with engine_of(directory) as first:
        await serve(directory, replace(SECOND, name="b", folder=tmp_path))
        assert directory.find("b") is first
        await serve(directory, SECOND)
        assert directory.find("a") is first
        assert first.entry == FIRST
        await first.replicas.close()

    await serve(directory, replace(SECOND, folder=tmp_path))
    with pytest.raises(ModelNotReady):
        directory.find("a")


async def test_a_former_engine_that_ends_is_not_waited_for(directory):
    await serve(directory, FIRST)
    async with engine_of(directory) as first:
        await serve(directory, SECOND)
        await first.replicas.close()

    assert directory.find("a") is not first
    with pytest.raises(ModelNotReady, match="not loaded any more"):
        await first.ready()


# -- The reasoning tags of an engine's family, and waiting for an engine -----------------


@pytest.mark.parametrize(
    ("event", "words"), [("is_gone", "not loaded any more"), ("is_failing", "failed to load")]
)
async def test_waiting_for_an_engine_that_cannot_start_ends_early(event, words, tmp_path):
    engine = new_engine(tmp_path)
    waiting = asyncio.create_task(engine.ready())
    await asyncio.sleep(0)
    setattr(engine, event, True)
    with pytest.raises(ModelNotReady, match=words):
        await asyncio.wait_for(waiting, 30)


# -- Requests of an alias are divided between its models

TARGETS = {"a": 90, "b": 10, "spare": 0}
some_targets = st.dictionaries(st.text(min_size=1), st.integers(0, 100), min_size=1, max_size=6)


def able(*names: str) -> Callable[[str], bool]:
    return lambda name: name in names


def drawn(targets: dict[str, int], can_answer: Callable[[str], bool]) -> Counter[str]:
    dice = Random(3)
    return Counter(draw(targets, can_answer, dice) for _ in range(2000))


def test_requests_are_divided_by_the_weights_between_models_that_can_answer():
    counts = drawn(TARGETS, able("a", "b", "spare"))
    assert 0.87 < counts["a"] / 2000 < 0.93
    assert counts["a"] + counts["b"] == 2000

    assert drawn(TARGETS, able("b")) == drawn(TARGETS, able("b", "spare")) == {"b": 2000}
    # A model without weight answers when no other can.
    assert drawn(TARGETS, able("spare")) == {"spare": 2000}
    # If no model can, requests wait for the models with a weight.
    assert set(drawn(TARGETS, able())) == {"a", "b"}


@given(some_targets, st.sets(st.text(min_size=1)), st.integers())
def test_what_is_drawn_can_answer_if_any_can(targets, others, seed):
    names = set(list(targets)[: seed % (len(targets) + 1)]) | others

    name = draw(targets, able(*names), Random(seed))

    assert name in targets
    assert name in names or not names & targets.keys()


async def test_engines_of_other_hosts_are_behind_their_relays(tmp_path):
    def context() -> SSLContext:
        raise OSError("no such host")

    directory = LocalDirectory(tmp_path, KEY, facts_of, context=context)
    places = (Place(0), Place(0, "[::1]:8001", "f"))
    await serve(directory, replace(LOADED, places=places))
    here, elsewhere = directory.find("a").replicas.clients
    assert isinstance(here.address, UnixAddress)
    assert elsewhere.address == TlsAddress("::1", 8001, "f", EngineAddress(1, "", 0))
    await serve(directory, replace(LOADED, places=places[1:]))
    assert directory.find("a").replicas.clients == [elsewhere]
    await directory.close()
