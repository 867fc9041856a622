"""Files of models from strangers cost the readers' limits, and nothing else."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tokenizers import Regex, Tokenizer, pre_tokenizers

from tests.fakes.engine import KEY
from tests.gateway.reading.readers import new_pool, read
from tests.gateway.running.tiny_chat import NOW, TINY_CHAT
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import Endpoint
from vinery_serving.engine.options import EngineOptions
from vinery_serving.gateway.engines.directory import Engine, LocalDirectory
from vinery_serving.gateway.engines.models import ModelEntry
from vinery_serving.gateway.state import model_rows
from vinery_serving.gateway.state.model_rows import ModelReaders
from vinery_serving.gateway.workers.pool import WorkerPool
from vinery_serving.media.decoding import DecodeLimits
from vinery_serving.prompting.folder import UnusableFolder

pytestmark = pytest.mark.asyncio(loop_scope="module")

_LOOPS = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
_SLOW = "{% for m in messages %}{% if 'SLOW' in m.content %}" + _LOOPS + "{% endif %}"
_SLOW += "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[WorkerPool]:
    async with new_pool() as pool:
        await ModelReaders(pool).read(_entry(TINY_CHAT))  # so that the fork server has started
        yield pool


def _entry(folder: Path) -> ModelEntry:
    return ModelEntry(1, "strange", folder, EngineOptions(), True, NOW, NOW)


def a_copy(of: Path) -> ModelEntry:
    """The reference model in a folder of its own."""
    folder = of / f"model-{len(list(of.iterdir()))}"
    folder.mkdir()
    for path in TINY_CHAT.iterdir():
        if path.suffix == ".bin" and path.stat().st_size > 2**20:
            (folder / path.name).symlink_to(path)
        else:
            shutil.copy(path, folder / path.name)
    return _entry(folder)


@pytest.fixture
def entry(tmp_path: Path) -> ModelEntry:
    return a_copy(tmp_path)


def _template(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "chat_template.jinja").write_text(text)


def _large(name: str, num_bytes: int) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(num_bytes)

    return write


def _deep_xml(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "chat_template.jinja").unlink()
    (folder / "openvino_tokenizer.xml").write_text("<a>" * 2_000_000 + "</a>" * 2_000_000)


def _pipe(folder: Path) -> None:
    (folder / "generation_config.json").unlink(missing_ok=True)
    os.mkfifo(folder / "generation_config.json")


@table(
    "write, reason",
    [
        (_template(_LOOPS), "takes more than"),
        (_template("{{ 'a' * 10**11 }}"), "cannot|takes|memory"),
        (_template("{% if 1 %}" * 3000 + "{% endif %}" * 3000), "nested too deeply"),
        (_large("tokenizer.json", 2 * 2**30), "larger than 512 MB"),
        (_large("config.json", 2**30), "larger than 32 MB"),
        (lambda folder: (folder / "config.json").write_text("[" * 10**6), "broken JSON"),
        (_deep_xml, "."),
        (_pipe, "is not a file"),
    ],
)
async def test_what_has_no_end_is_refused_with_a_reason(write, reason, pool, tmp_path, monkeypatch):
    entry = a_copy(tmp_path)
    monkeypatch.setattr(model_rows, "_TIME_S", 8)
    monkeypatch.setattr(model_rows, "_MEMORY_BYTES", 2**30)
    write(entry.folder)
    pool.allow(entry.read_paths)
    with pytest.raises(UnusableFolder, match=reason):
        await ModelReaders(pool).read(entry)


async def loaded(pool: WorkerPool, entry: ModelEntry, tmp_path: Path) -> Engine:
    pool.allow(entry.read_paths)
    directory = LocalDirectory(tmp_path, KEY, ModelReaders(pool).read)
    await directory.update({entry.name: entry})
    await directory.settle()
    engine = directory.find(entry.name)
    pool.load((((entry, engine.assets.facts),), {}, DecodeLimits()))
    return engine


async def num_in_workers(pool: WorkerPool, engine: Engine, text: str) -> int:
    """How many worker processes prepare a small request."""
    before = pool.num_ended.total()
    body = {"messages": [{"role": "user", "content": text}]}
    _, draft = await read(pool, engine, Endpoint.CHAT, json.dumps(body).encode())
    assert draft.prompts[0].token_ids
    return pool.num_ended.total() - before


async def test_a_small_request_goes_to_a_worker_where_the_template_exceeds_its_budget(
    pool, entry, tmp_path
):
    _template(_SLOW.replace("100000", "1000"))(entry.folder)
    engine = await loaded(pool, entry, tmp_path)
    assert await num_in_workers(pool, engine, "Hello!") == 0
    assert await num_in_workers(pool, engine, "SLOW") == 1


def _with_costly_pattern(folder: Path) -> None:
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    catastrophic = pre_tokenizers.Split(Regex("(x+x+)+y"), "isolated")
    raw.pre_tokenizer = pre_tokenizers.Sequence([catastrophic, raw.pre_tokenizer])
    raw.save(str(folder / "tokenizer.json"))


def _of_openvino_alone(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _with_many_tokens(folder: Path) -> None:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    for number in range(300_000):
        vocabulary[f"none{number}"] = len(vocabulary) + len(content["added_tokens"])
    file.write_text(json.dumps(content))


@table("id_, change", enumerate((_with_costly_pattern, _of_openvino_alone, _with_many_tokens), 2))
async def test_a_small_request_goes_to_a_worker_where_the_tokenizer_may_take_long(
    id_, change, pool, tmp_path
):
    entry = replace(a_copy(tmp_path), id=id_)
    change(entry.folder)
    engine = await loaded(pool, entry, tmp_path)

    assert await num_in_workers(pool, engine, "Hello!") == 1
    if change is _with_costly_pattern:
        with pytest.raises(InvalidRequest, match="cannot encode"):
            await num_in_workers(pool, engine, "x" * 3000)
    if change is _with_many_tokens:  # the web process decodes
        assert not isinstance(engine.assets.tokenizer.raw, Tokenizer)
        assert engine.assets.tokenizer.token_name(0) == "<|endoftext|>"
