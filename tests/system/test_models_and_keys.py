"""Administration of a running platform: models and keys come and go without a restart."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.conftest import REPOSITORY, Running, until
from tests.random_models.folder import (
    without_tokenizer_json,
    write_llama_folder,
    write_qwen2_folder,
)
from tests.system.clients import (
    answers,
    chat,
    complete,
    http_of,
    new_key,
    openai_of,
    serving,
    vinery,
)
from tests.system.ledger import execute, wait_until_seen

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"
HELLO = [{"role": "user", "content": "Hello!"}]
FOR_MINUTES = {"model": "tiny-chat", "prompt": "Count:", "max_tokens": 1900, "stream": True}
FOR_MINUTES |= {"n": 8, "ignore_eos": True, "temperature": 0}


@pytest.fixture
def client(running: Running) -> openai.OpenAI:
    return openai_of(running)


def status(running: Running, key: str = "", model: str = "tiny-chat") -> int:
    return chat(running, key=key, model=model, max_tokens=2).status_code


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("llama", write_llama_folder),
        ("qwen2", write_qwen2_folder),
        ("no-fast-tokenizer", lambda path: without_tokenizer_json(write_llama_folder(path))),
    ],
)
def test_a_folder_of_another_architecture_is_served_when_it_is_added(
    running: Running, client: openai.OpenAI, tmp_path: Path, name: str, write: object
) -> None:
    folder = tmp_path / name
    write(folder)  # type: ignore[operator]

    with serving(running, {name: [folder]}):
        asked: Any = {"model": name, "messages": HELLO, "max_tokens": 12, "temperature": 0}
        answer = client.chat.completions.create(**asked)
        chunks = list(client.chat.completions.create(**asked, stream=True))
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert answer.choices[0].message.content == streamed
        assert name in {model.id for model in client.models.list().data}
        assert answers(running, "tiny-chat"), "several are loaded at once"
    assert not answers(running, name)


def test_an_alias_moves_and_no_request_fails(running: Running, client: openai.OpenAI) -> None:
    vinery(running, "alias", "set", "gpt-4o", "tiny-chat")
    moved, ended = threading.Event(), threading.Event()

    def asked() -> list[str]:
        """The models of the answers, until some time after the move."""
        models: list[str] = []
        while not ended.is_set():
            answer = client.chat.completions.create(model="gpt-4o", messages=HELLO, max_tokens=2)
            models.append(answer.model)
            if moved.is_set() and models[-5:] == ["newer"] * 5:
                break
        return models

    with serving(running, {"newer": ["tiny-chat"]}):
        with ThreadPoolExecutor(4) as threads:
            clients = [threads.submit(asked) for _ in range(4)]
            try:
                vinery(running, "alias", "set", "gpt-4o", "tiny-chat=1", "newer=1")
                vinery(running, "alias", "set", "gpt-4o", "newer")
                moved.set()
                seen = [each.result(60) for each in clients]
            finally:
                ended.set()

        assert all(models[0] == "tiny-chat" and models[-1] == "newer" for models in seen)
        listed = {model.id: model.model_dump() for model in client.models.list().data}
        assert listed["gpt-4o"]["alias_of"] == ["newer"]
        vinery(running, "alias", "remove", "gpt-4o")
    assert not answers(running, "gpt-4o")


def test_a_model_is_unloaded_and_loaded_by_command(running: Running, client: openai.OpenAI) -> None:
    # The engine of a removed model may still be about to end.
    (engine,) = until(lambda: len(pids := running.pids("engine")) == 1 and pids)
    vinery(running, "model", "unload", "tiny-chat")
    until(lambda: not running.pids("engine"))
    assert status(running) == 503
    assert "unloaded" in vinery(running, "model", "list")
    assert client.models.list().data == []
    everything = client.models.list(extra_query={"all": "true"}).data
    assert [(model.id, model.to_dict()["state"]) for model in everything] == [
        ("tiny-chat", "not-loaded")
    ]
    assert client.models.retrieve("tiny-chat").to_dict()["state"] == "not-loaded"
    with pytest.raises(openai.BadRequestError, match="0 models are loaded"):
        client.chat.completions.create(model="default", messages=HELLO)

    vinery(running, "model", "load", "tiny-chat")

    until(lambda: answers(running, "tiny-chat"), timeout_s=60)
    assert [model.id for model in client.models.list()] == ["tiny-chat"]
    assert running.pids("engine") != [engine]
    assert "ready" in vinery(running, "model", "list")


@pytest.mark.stores
@pytest.mark.parametrize("end", ["rotated", "expired"])
def test_a_key_that_is_rotated_or_expires_ends_what_it_runs(running: Running, end: str) -> None:
    api = http_of(running, new_key(running, end, "--scope", "manage"))
    api.base_url = f"{running.base_url}/api/keys/"
    project = api.get("").json()["data"][0]["project"]
    made = api.post("", json={"name": "runs", "project": project}).json()
    wait_until_seen(running)

    with (
        http_of(running, made["secret"]) as http,
        http.stream("POST", "/v1/completions", json=FOR_MINUTES) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        if end == "rotated":
            answer = api.post(f"{made['id']}/rotate/", json={"grace_s": 0})
        else:
            soon = datetime.now(UTC) + timedelta(seconds=2)
            answer = api.patch(f"{made['id']}/", json={"expires_at": soon.isoformat()})
        result = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    assert answer.is_success
    assert result[-1]["error"]["code"] == "invalid_api_key"
    wait_until_seen(running)
    assert status(running, made["secret"]) == 401
    if end == "rotated":
        assert api.get(f"{made['id']}/").json()["state"] == "revoked"
        assert status(running, answer.json()["secret"]) == 200


def test_a_model_of_one_project_does_not_exist_for_keys_of_another(
    running: Running, client: openai.OpenAI, tmp_path: Path
) -> None:
    write_qwen2_folder(tmp_path / "private")
    vinery(running, "organization", "create", "private")
    vinery(running, "project", "create", "owner", "--organization", "private")
    key = new_key(running, "owner", "--project", "private/owner")
    owner = openai_of(running, key)
    with serving(running, {"private": [tmp_path / "private"]}):
        vinery(running, "model", "change", "private", "--project", "private/owner")
        until(lambda: status(running, key, "private") == 200, timeout_s=60)

        assert status(running, model="private") == 404
        assert "private" not in {model.id for model in client.models.list().data}
        assert "private" in {model.id for model in owner.models.list().data}
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("private")

        vinery(running, "model", "change", "private", "--any-project")
        until(lambda: answers(running, "private"), timeout_s=60)


# -- A model that cannot load is tried a few times, stays failed, and loads when it is corrected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY_CHAT, tmp_path / "model"))


@contextmanager
def added(platform: Running, folder: Path, name: str, *options: str) -> Iterator[None]:
    """A model that cannot answer yet."""
    vinery(platform, "model", "add", str(folder), "--name", name, *options)
    try:
        yield
    finally:
        vinery(platform, "model", "remove", name)


def state_of(platform: Running, name: str) -> tuple[str, str]:
    """The state of a model, and its last error."""
    rows = execute(
        platform,
        "SELECT e.state, e.last_error FROM serving_enginestatus e JOIN serving_servedmodel m "
        "ON m.id = e.model_id WHERE m.name = ?",
        name,
    )
    return rows[0] if rows else ("unloaded", "")


def test_a_failed_model_loads_when_it_is_whole_or_asked_to(running: Running, folder: Path) -> None:
    weights = folder / "openvino_model.bin"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1000])

    with added(running, folder, "cut"):
        until(lambda: state_of(running, "cut")[0] == "failed")
        refused = until(
            lambda: "failed to load" in (found := complete(running, "cut")).text and found
        )
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert answers(running, "tiny-chat")
        _, error = state_of(running, "cut")
        assert error.startswith("A weights file is missing or cut")
        assert "is missing or cut" in vinery(running, "model", "list")

        weights.write_bytes(whole)
        until(lambda: state_of(running, "cut") == ("ready", ""), timeout_s=60)

        assert answers(running, "cut")
        until(lambda: len(running.pids("engine")) == 2)

    option = ("--option", 'plugin={"PERFORMANCE_HINT": "FAST"}')
    log = running.home / "logs" / "engine-picky.log"

    def num_tries() -> int:
        return len(re.findall("does not load.*PERFORMANCE_HINT", log.read_text()))

    with added(running, folder, "picky", *option):
        until(lambda: state_of(running, "picky")[0] == "failed")
        _, error = state_of(running, "picky")
        assert error.startswith("The property PERFORMANCE_HINT cannot be FAST.")
        before = num_tries()
        assert before

        vinery(running, "model", "load", "picky")
        until(
            lambda: num_tries() > before and state_of(running, "picky")[0] == "failed", timeout_s=60
        )
