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


def secret_in(text: str) -> str:
    return next(word for word in text.split() if word.startswith("vny_"))


@pytest.fixture(scope="module")
def platform(running: Running) -> Running:
    return running


@pytest.fixture
def client(platform: Running) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{platform.base_url}/v1", api_key=platform.api_key, max_retries=0, timeout=60
    )


def status(platform: Running, key: str, model: str = "tiny-chat") -> int:
    return httpx.post(
        f"{platform.base_url}/v1/chat/completions",
        headers={"authorization": f"Bearer {key}"},
        json={"model": model, "messages": HELLO, "max_tokens": 2},
        timeout=60,
    ).status_code


def answers(client: openai.OpenAI, model: str) -> bool:
    try:
        client.chat.completions.create(model=model, messages=HELLO, max_tokens=4)
    except openai.APIStatusError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("llama", write_llama_folder),
        ("qwen2", write_qwen2_folder),
        ("no-fast-tokenizer", lambda path: without_tokenizer_json(write_llama_folder(path))),
    ],
)
def test_a_folder_of_another_architecture_is_served_when_it_is_added(
    platform: Running, client: openai.OpenAI, tmp_path: Path, name: str, write: object
) -> None:
    folder = tmp_path / name
    write(folder)  # type: ignore[operator]

    vinery(platform, "model", "add", str(folder), "--name", name)
    until(lambda: answers(client, name), timeout_s=60)

    answer = client.chat.completions.create(
        model=name, messages=HELLO, max_tokens=12, temperature=0
    )
    chunks = list(
        client.chat.completions.create(
            model=name, messages=HELLO, max_tokens=12, temperature=0, stream=True
        )
    )
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert answer.choices[0].message.content == streamed
    assert name in {model.id for model in client.models.list().data}
    assert answers(client, "tiny-chat"), "several are loaded at once"
    vinery(platform, "model", "remove", name)
    assert not answers(client, name)


EVERY_QUESTION: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": HELLO},
    "completions": {"prompt": "Hello"},
    "responses": {"input": "Hello"},
    "responses/input_tokens": {"input": "Hello"},
    "tokenize": {"prompt": "Hello"},
    "detokenize": {"tokens": [5]},
    "tokenizer_info": {},
}


def ask(platform: Running, tree: str, path: str, **model: str | None) -> httpx.Response:
    """As each endpoint is asked, with these words about the model."""
    url = f"{platform.base_url}/{tree}/{path}"
    headers = {"authorization": f"Bearer {platform.api_key}"}
    if path == "tokenizer_info":
        return httpx.get(url, headers=headers, params={k: v for k, v in model.items() if v})
    body = {**EVERY_QUESTION[path], **model}
    return httpx.post(url, headers=headers, json=body, timeout=60)


def test_a_request_without_a_model_gets_the_only_one_or_an_error_with_all_names(
    platform: Running, client: openai.OpenAI, tmp_path: Path
) -> None:
    everywhere = [(tree, path) for tree in ("v1", "v3") for path in EVERY_QUESTION]
    unnamed: list[dict[str, str | None]] = [{}, {"model": None}, {"model": "default"}]
    for tree, path in everywhere:
        assert {ask(platform, tree, path, **each).status_code for each in unnamed} == {200}, path

    write_qwen2_folder(tmp_path / "second")
    vinery(platform, "model", "add", str(tmp_path / "second"), "--name", "second")
    until(lambda: answers(client, "second"), timeout_s=60)

    for tree, path in everywhere:
        for each in unnamed:
            refused = ask(platform, tree, path, **each)
            error = refused.json()["error"]
            assert (refused.status_code, error["param"]) == (400, "model"), path
            assert error["code"] == "missing_required_parameter"
            assert error["message"] == (
                "`model` is required: 2 models are served. GET /v1/models lists those that can "
                "answer now."
            )
        unknown = ask(platform, tree, path, model="null")
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "model"), path
        assert "`null`" in unknown.json()["error"]["message"]
        assert ask(platform, tree, path, model="tiny-chat").status_code == 200
    vinery(platform, "model", "remove", "second")


def test_an_alias_moves_to_another_model_and_no_request_fails(
    platform: Running, client: openai.OpenAI
) -> None:
    vinery(platform, "model", "add", "tiny-chat", "--name", "newer")
    vinery(platform, "alias", "set", "gpt-4o", "tiny-chat")
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

    with ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(asked) for _ in range(4)]
        try:
            until(lambda: answers(client, "newer"), timeout_s=60)
            vinery(platform, "alias", "set", "gpt-4o", "tiny-chat=1", "newer=1")
            vinery(platform, "alias", "set", "gpt-4o", "newer")
            moved.set()
            seen = [each.result(60) for each in clients]
        finally:
            ended.set()

    assert all(models[0] == "tiny-chat" and models[-1] == "newer" for models in seen)
    listed = {model.id: model.model_dump() for model in client.models.list().data}
    assert listed["gpt-4o"]["alias_of"] == ["newer"]
    vinery(platform, "alias", "remove", "gpt-4o")
    vinery(platform, "model", "remove", "newer")
    assert not answers(client, "gpt-4o")


def test_a_key_for_an_alias_gets_its_models_and_no_others_by_name(platform: Running) -> None:
    vinery(platform, "alias", "set", "gpt-4o", "tiny-chat")
    of_alias, of_model, of_neither = (
        secret_in(vinery(platform, "key", "create", "--name", f"of {name}", "--model", name))
        for name in ("gpt-4o", "tiny-chat", "else")
    )

    statuses = [
        [status(platform, key, model) for model in ("gpt-4o", "tiny-chat")]
        for key in (of_alias, of_model, of_neither)
    ]

    assert statuses == [[200, 403], [200, 200], [403, 403]]
    vinery(platform, "alias", "remove", "gpt-4o")


def test_a_model_is_unloaded_and_loaded_without_a_restart(
    platform: Running, client: openai.OpenAI
) -> None:
    # One that was removed before may still be about to end.
    (engine,) = until(lambda: len(pids := platform.pids("engine")) == 1 and pids)
    vinery(platform, "model", "unload", "tiny-chat")
    until(lambda: not platform.pids("engine"))
    assert status(platform, platform.api_key) == 503
    assert "unloaded" in vinery(platform, "model", "list")
    assert client.models.list().data == []
    everything = client.models.list(extra_query={"all": "true"}).data
    assert [(model.id, model.to_dict()["state"]) for model in everything] == [
        ("tiny-chat", "not-loaded")
    ]
    assert client.models.retrieve("tiny-chat").to_dict()["state"] == "not-loaded"
    with pytest.raises(openai.BadRequestError, match="no model can answer now"):
        client.chat.completions.create(model="default", messages=HELLO)

    vinery(platform, "model", "load", "tiny-chat")

    until(lambda: answers(client, "tiny-chat"), timeout_s=60)
    assert [model.id for model in client.models.list()] == ["tiny-chat"]
    assert platform.pids("engine") != [engine]
    assert "ready" in vinery(platform, "model", "list")


def test_a_folder_that_cannot_be_loaded_shows_why(platform: Running, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "openvino_model.xml").write_text("<net/>")
    (folder / "openvino_model.bin").write_bytes(b"")

    vinery(platform, "model", "add", str(folder), "--name", "broken")

    listed = until(lambda: "failed" in (text := vinery(platform, "model", "list")) and text)
    assert "no tokenizer" in str(listed)
    assert status(platform, platform.api_key, "broken") == 503
    assert status(platform, platform.api_key) == 200
    vinery(platform, "model", "remove", "broken")


def test_an_organisation_whose_name_no_header_can_hold_is_named_in_answers(
    platform: Running,
) -> None:
    vinery(platform, "organization", "create", "Größe")
    vinery(platform, "project", "create", "header", "--organization", "Größe")
    made = vinery(platform, "key", "create", "--name", "header", "--project", "Größe/header")

    answer = httpx.get(
        f"{platform.base_url}/v1/models", headers={"authorization": f"Bearer {secret_in(made)}"}
    )

    assert answer.status_code == 200
    assert answer.headers["openai-organization"] == "Gr%C3%B6%C3%9Fe"


def test_a_created_key_works_and_a_revoked_one_stops(platform: Running) -> None:
    made = vinery(platform, "key", "create", "--name", "laptop")
    key = secret_in(made)
    assert status(platform, key) == 200
    assert "laptop" in vinery(platform, "key", "list")
    assert key not in vinery(platform, "key", "list")

    number = next(
        line.split()[0] for line in vinery(platform, "key", "list").splitlines() if "laptop" in line
    )
    vinery(platform, "key", "revoke", number)

    assert status(platform, key) == 401
    assert status(platform, platform.api_key) == 200


@pytest.mark.parametrize("end", ["rotated", "expired"])
def test_a_key_that_is_rotated_without_grace_or_expires_ends_what_runs_with_it(
    platform: Running, end: str
) -> None:
    manager = secret_in(vinery(platform, "key", "create", "--name", end, "--scope", "manage"))
    api = httpx.Client(
        base_url=f"{platform.base_url}/api/keys/",
        headers={"authorization": f"Bearer {manager}"},
        timeout=60,
    )
    project = api.get("").json()["data"][0]["project"]
    made = api.post("", json={"name": "runs", "project": project}).json()
    wait_until_seen(platform)

    with httpx.stream(
        "POST",
        f"{platform.base_url}/v1/completions",
        headers={"authorization": f"Bearer {made['secret']}"},
        json=FOR_MINUTES,
        timeout=60,
    ) as stream:
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
    wait_until_seen(platform)
    assert status(platform, made["secret"]) == 401
    if end == "rotated":
        assert api.get(f"{made['id']}/").json()["state"] == "revoked"
        assert status(platform, answer.json()["secret"]) == 200


def test_a_full_queue_is_503_with_a_time_to_come_back(platform: Running, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    write_qwen2_folder(folder)
    limits = ["--option", "max_running=1", "--option", "max_waiting=1"]
    vinery(platform, "model", "add", str(folder), "--name", "small", *limits)
    until(lambda: status(platform, platform.api_key, "small") == 200, timeout_s=60)
    body = {"model": "small", "prompt": "x", "max_tokens": 400, "n": 2, "temperature": 0}

    def ask(body: dict[str, object]) -> httpx.Response:
        headers = {"authorization": f"Bearer {platform.api_key}"}
        return httpx.post(
            f"{platform.base_url}/v1/completions", headers=headers, json=body, timeout=60
        )

    with ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(ask, [body] * 4))
    too_many = ask({**body, "n": 6})

    refused = [answer for answer in answers if answer.status_code != 200]
    assert refused
    assert {answer.status_code for answer in refused} == {503}
    assert {answer.json()["error"]["code"] for answer in refused} == {"overloaded"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert too_many.status_code == 400
    assert "takes at most 2 at once" in too_many.json()["error"]["message"]
    vinery(platform, "model", "remove", "small")


def test_an_engine_that_never_starts_is_not_waited_for(platform: Running, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    write_qwen2_folder(folder)
    (folder / "openvino_model.bin").write_bytes(b"")
    vinery(platform, "model", "add", str(folder), "--name", "empty")

    until(lambda: status(platform, platform.api_key, "empty") == 503, timeout_s=60)

    answer = httpx.post(
        f"{platform.base_url}/v1/chat/completions",
        headers={"authorization": f"Bearer {platform.api_key}"},
        json={"model": "empty", "messages": HELLO},
        timeout=60,
    )
    assert "failed to load" in answer.json()["error"]["message"]
    assert answer.headers["retry-after"]
    vinery(platform, "model", "remove", "empty")
