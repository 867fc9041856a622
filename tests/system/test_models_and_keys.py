"""Administration of a running platform: models and keys come and go without a restart."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import Running, until
from tests.live.model_folders import (
    without_tokenizer_json,
    write_llama_folder,
    write_qwen2_folder,
)
from tests.system.clients import answers, complete, http_of, new_key, openai_of, post, serving
from tests.system.commands import vinery
from tests.system.ledger import wait_until_seen

pytestmark = pytest.mark.system

HELLO = [{"role": "user", "content": "Hello!"}]


FOR_MINUTES = {
    "model": "tiny-chat",
    "prompt": "Count:",
    "max_tokens": 1900,
    "n": 8,
    "ignore_eos": True,
    "temperature": 0,
    "stream": True,
}


@pytest.fixture
def client(running: Running) -> openai.OpenAI:
    return openai_of(running)


def status(running: Running, key: str = "", model: str = "tiny-chat") -> int:
    body = {"model": model, "messages": HELLO, "max_tokens": 2}
    return post(running, "/v1/chat/completions", body, key).status_code


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


EVERY_QUESTION: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": HELLO},
    "completions": {"prompt": "Hello"},
    "responses": {"input": "Hello"},
    "responses/input_tokens": {"input": "Hello"},
    "tokenize": {"prompt": "Hello"},
    "detokenize": {"tokens": [5]},
    "tokenizer_info": {},
}


def ask(running: Running, tree: str, path: str, **model: str | None) -> httpx.Response:
    """As each endpoint is asked, with these words about the model."""
    if path == "tokenizer_info":
        with http_of(running) as http:
            return http.get(f"/{tree}/{path}", params={k: v for k, v in model.items() if v})
    return post(running, f"/{tree}/{path}", {**EVERY_QUESTION[path], **model})


def test_a_request_without_a_model_gets_the_only_one_or_an_error_with_all_names(
    running: Running, tmp_path: Path
) -> None:
    everywhere = [(tree, path) for tree in ("v1", "v3") for path in EVERY_QUESTION]
    unnamed: list[dict[str, str | None]] = [{}, {"model": None}, {"model": "default"}]
    for tree, path in everywhere:
        assert {ask(running, tree, path, **each).status_code for each in unnamed} == {200}, path

    write_qwen2_folder(tmp_path / "second")
    with serving(running, {"second": [tmp_path / "second"]}):
        for tree, path in everywhere:
            for each in unnamed:
                refused = ask(running, tree, path, **each)
                error = refused.json()["error"]
                assert (refused.status_code, error["param"]) == (400, "model"), path
                assert error["code"] == "missing_required_parameter"
                assert error["message"] == (
                    "`model` is required: 2 models are served. GET /v1/models lists those that "
                    "can answer now."
                )
            unknown = ask(running, tree, path, model="null")
            assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "model"), path
            assert "`null`" in unknown.json()["error"]["message"]
            assert ask(running, tree, path, model="tiny-chat").status_code == 200


def test_an_alias_moves_to_another_model_and_no_request_fails(
    running: Running, client: openai.OpenAI
) -> None:
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


def test_a_key_for_an_alias_gets_its_models_and_no_others_by_name(running: Running) -> None:
    vinery(running, "alias", "set", "gpt-4o", "tiny-chat")
    of_alias, of_model, of_neither = (
        new_key(running, f"of {name}", "--model", name) for name in ("gpt-4o", "tiny-chat", "else")
    )

    statuses = [
        [status(running, key, model) for model in ("gpt-4o", "tiny-chat")]
        for key in (of_alias, of_model, of_neither)
    ]

    assert statuses == [[200, 403], [200, 200], [403, 403]]
    vinery(running, "alias", "remove", "gpt-4o")


def test_a_model_is_unloaded_and_loaded_without_a_restart(
    running: Running, client: openai.OpenAI
) -> None:
    # One that was removed before may still be about to end.
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
    with pytest.raises(openai.BadRequestError, match="no model can answer now"):
        client.chat.completions.create(model="default", messages=HELLO)

    vinery(running, "model", "load", "tiny-chat")

    until(lambda: answers(running, "tiny-chat"), timeout_s=60)
    assert [model.id for model in client.models.list()] == ["tiny-chat"]
    assert running.pids("engine") != [engine]
    assert "ready" in vinery(running, "model", "list")


@pytest.mark.stores
def test_a_created_key_works_and_a_revoked_one_stops(running: Running) -> None:
    key = new_key(running, "laptop")
    assert status(running, key) == 200
    listed = vinery(running, "key", "list")
    assert key not in listed

    (number,) = [line.split()[0] for line in listed.splitlines() if "laptop" in line]
    vinery(running, "key", "revoke", number)

    assert status(running, key) == 401
    assert status(running) == 200


@pytest.mark.parametrize("end", ["rotated", "expired"])
def test_a_key_that_is_rotated_without_grace_or_expires_ends_what_runs_with_it(
    running: Running, end: str
) -> None:
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


def test_a_full_queue_is_503_with_a_time_to_come_back(running: Running, tmp_path: Path) -> None:
    write_qwen2_folder(tmp_path / "small")
    bounds = ["--option", "max_running=1", "--option", "max_waiting=1"]

    def ask(number: int) -> httpx.Response:
        return complete(running, "small", max_tokens=400, n=number, temperature=0)

    with serving(running, {"small": [tmp_path / "small", *bounds]}):
        with ThreadPoolExecutor(4) as clients:
            answers = list(clients.map(ask, [2] * 4))
        too_many = ask(6)

    refused = [answer for answer in answers if answer.status_code != 200]
    assert refused
    assert {answer.status_code for answer in refused} == {503}
    assert {answer.json()["error"]["code"] for answer in refused} == {"overloaded"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert too_many.status_code == 400
    assert "takes at most 2 at once" in too_many.json()["error"]["message"]


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
