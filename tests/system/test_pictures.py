"""Pictures as a user sends them, with OpenAI's client: inline, from a file of the server, and from
another server under a rule that an administrator has written."""

import csv
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from PIL import Image

from tests.conftest import REPOSITORY, Running, until
from tests.media.picture_server import serving_a_picture
from tests.shapes import data_url, encoded
from tests.system.clients import answers, claude_of, openai_of, post, serving, vinery

NAME = "seer"
IMAGE_TOKENS = 16  # of a picture of 224 x 224 pixels
# Without it, a message asks for an answer without reasoning, and other requests do not.
AS_OTHERS = {"chat_template_kwargs": {}}
PNG = encoded(Image.new("RGB", (224, 224), "red"))
INLINE = data_url(PNG)


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[openai.OpenAI]:
    with serving(running, {NAME: ["tiny-vision"]}):
        yield openai_of(running)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures").resolve()
    (folder / "red.png").write_bytes(PNG)
    return folder


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server with a picture."""
    with serving_a_picture(PNG) as found:
        yield found


def picture(url: str) -> Any:
    return {"type": "image_url", "image_url": {"url": url}}


def question(*urls: str) -> Any:
    return [
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, *map(picture, urls)]}
    ]


def asked(client: openai.OpenAI, *urls: str, **fields: Any) -> Any:
    return client.chat.completions.create(
        model=NAME, messages=question(*urls), max_tokens=4, temperature=0, **fields
    )


def image_tokens(usage: Any) -> int | None:
    return getattr(usage.prompt_tokens_details, "image_tokens", None)


def test_tokens_of_pictures_are_counted_in_any_api(client: openai.OpenAI, running: Running) -> None:
    for urls in ((), (INLINE,), (INLINE, INLINE)):
        answer = asked(client, *urls)
        counted = post(running, "/tokenize", {"model": NAME, "messages": question(*urls)})

        assert answer.usage.prompt_tokens == counted.json()["count"]
        assert (image_tokens(answer.usage) or 0) == IMAGE_TOKENS * len(urls)

    claude = claude_of(running)
    source = {"type": "base64", "media_type": "image/png", "data": INLINE.partition(",")[2]}
    content: Any = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": source}]
    messages: Any = [{"role": "user", "content": content}]

    message = claude.messages.create(
        model=NAME, max_tokens=4, messages=messages, extra_body={"temperature": 0, **AS_OTHERS}
    )
    counted = claude.messages.count_tokens(model=NAME, messages=messages, extra_body=AS_OTHERS)

    answer = asked(client, INLINE)
    assert [block.text for block in message.content if block.type == "text"] == [
        answer.choices[0].message.content
    ]
    usage = message.usage
    num_prompt_tokens = usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert counted.input_tokens == num_prompt_tokens == answer.usage.prompt_tokens


def test_twenty_megabytes_are_taken_and_no_picture_by_a_text_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="takes text only") as caught:
        client.chat.completions.create(model="tiny-chat", messages=question(INLINE), max_tokens=2)

    assert caught.value.param == "messages[0].content[1].image_url"

    large = encoded(Image.effect_noise((4400, 4400), 90), compress_level=0)
    assert 18 * 2**20 < len(large) <= 20 * 2**20
    assert image_tokens(asked(client, data_url(large)).usage) == IMAGE_TOKENS


def test_a_rule_lets_a_url_in_within_a_second_or_a_folder_and_other_paths_stay_out(
    client: openai.OpenAI, running: Running, port: int, pictures: Path
) -> None:
    url = f"http://localhost:{port}/red.png"
    with pytest.raises(openai.BadRequestError) as caught:
        asked(client, url)
    denied = ("media_denied", "messages[0].content[1].image_url")
    assert (caught.value.code, caught.value.param) == denied
    until(lambda: "localhost" in vinery(running, "media", "denials"), timeout_s=20)

    vinery(
        running,
        *("media", "allow", "localhost", "--scheme", "http", "--port", str(port)),
        *("--network", "127.0.0.0/8", "--network", "::1/128"),
    )
    until(lambda: is_answered(client, url), timeout_s=10)

    answer = asked(client, url, INLINE)
    assert image_tokens(answer.usage) == 2 * IMAGE_TOKENS
    for other in (f"http://localhost:{port}/page", f"http://127.0.0.1:{port}/red.png"):
        with pytest.raises(openai.BadRequestError) as refused:
            asked(client, other)
        assert refused.value.code == "media_denied"

    vinery(running, "media", "allow", str(pictures))
    until(lambda: is_answered(client, f"file://{pictures}/red.png"), timeout_s=10)
    on_v3 = client.with_options(base_url=f"{running.base_url}/v3")

    assert image_tokens(asked(on_v3, f"{pictures}/red.png").usage) == IMAGE_TOKENS
    tested = vinery(running, "media", "test", f"{pictures}/red.png")
    assert "picture of 224 x 224 pixels" in tested
    with pytest.raises(openai.BadRequestError, match="Only /v3 takes paths"):
        asked(client, f"{pictures}/red.png")
    with pytest.raises(openai.BadRequestError) as caught:
        asked(on_v3, "/etc/passwd")
    assert caught.value.code == "media_denied"


def is_answered(client: openai.OpenAI, url: str) -> bool:
    try:
        return bool(asked(client, url))
    except openai.BadRequestError:
        return False


def test_usage_has_the_media_also_of_two_engines(client: openai.OpenAI, running: Running) -> None:
    request_id = client.chat.completions.with_raw_response.create(
        model=NAME, messages=question(INLINE, INLINE), max_tokens=2
    ).headers["x-request-id"]

    row = until(lambda: exported(running, request_id), timeout_s=20)

    names = ("num_image_tokens", "num_media", "num_media_bytes", "num_media_pixels")
    counted = [int(row[name]) for name in names]
    assert counted == [2 * IMAGE_TOKENS, 2, 2 * len(PNG), 2 * 112 * 112]
    assert float(row["decode_ms"]) > 0
    assert float(row["encode_ms"]) > 0
    assert row["fetch_ms"] == ""

    asked: Any = {"model": NAME, "messages": question(INLINE), "max_tokens": 1000}
    stream: Any = {"stream": True, "stream_options": {"include_usage": True}}
    with client.chat.completions.create(
        **asked, **stream, extra_body={"ignore_eos": True}
    ) as answer:
        chunks = iter(answer)
        next(chunks)
        running.kill("engine")
        *_, last = chunks

    row = until(lambda: exported(running, answer.response.headers["x-request-id"]), timeout_s=20)

    assert image_tokens(last.usage) == int(row["num_image_tokens"]) == IMAGE_TOKENS
    assert int(row["num_prompt_tokens"]) == last.usage.prompt_tokens
    assert int(row["num_continuations"]) == int(row["num_media"]) == 1
    until(lambda: answers(running, "tiny-chat"), timeout_s=60)


def exported(running: Running, request_id: str) -> dict[str, str] | None:
    text = vinery(running, "usage", "export", "--last", "1h")
    rows = csv.DictReader(io.StringIO(text))
    return next((row for row in rows if row["request_id"] == request_id), None)


def test_a_loaded_vision_model_is_tested_by_command_and_by_the_recipe_of_the_guide(
    client: openai.OpenAI, running: Running, tmp_path: Path
) -> None:
    assert vinery(running, "model", "self-test", NAME) == f"{NAME}: passed\n"

    guide = (REPOSITORY / "docs/guides/clients.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    [program] = [text for text in programs if "image_url" in text]
    (tmp_path / "cat.png").write_bytes(PNG)

    url = f"{running.base_url}/v1"
    run = subprocess.run(
        [sys.executable, "-c", program.replace("qwen2.5-vl", NAME)],
        cwd=tmp_path,
        env={**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": running.api_key},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert run.stdout.strip()
