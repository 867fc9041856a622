"""The media of a request are fetched here, decoded in a worker, and counted exactly."""

import base64
import io
import json
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image

from tests.gateway.reading import readers
from tests.gateway.reading.readers import LARGE, new_pool, no_files
from tests.gateway.running.tiny_chat import new_engine
from tests.media.pdfs import pages, pdf, words
from tests.prompting.test_vision import a_vision_folder
from tests.tables import table
from vinery_serving.core.dialects import V1
from vinery_serving.core.errors import InvalidRequest, RequestQuarantined
from vinery_serving.core.media import InlineSource, MediaPart, UrlSource
from vinery_serving.core.request import Endpoint
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.engines.suspects import Quarantine
from vinery_serving.gateway.preparing.prepared import Draft, PreparedRequest
from vinery_serving.gateway.reading.worker_jobs import decode_media, decoded
from vinery_serving.gateway.workers.pool import Worker, WorkerCrashed, WorkerPool
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.vision import QwenProcessor
from vinery_serving.protocols import parse

pytestmark = pytest.mark.asyncio(loop_scope="module")

URL = "https://pictures.example/a.png"
RED, BLUE = (255, 0, 0), (0, 0, 255)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[WorkerPool]:
    async with new_pool() as pool:
        yield pool


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_vision_folder(tmp_path_factory.mktemp("vision") / "model")


@pytest_asyncio.fixture(loop_scope="module")
async def engine(tmp_path: Path, folder: Path) -> Engine:
    engine = new_engine(tmp_path, ModelAssets.load(folder))
    engine.entry = replace(engine.entry, folder=folder)
    return engine


def a_png(width: int = 112, height: int = 112, color: Any = RED) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), color).save(file, "PNG")
    return file.getvalue()


def inline(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def picture(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def question(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "What is it?"}, *parts]}


async def read(
    pool: WorkerPool, engine: Engine, fields: Any, fetch: Any = no_files, padding: str = ""
) -> Draft:
    body = (json.dumps(fields) + padding).encode()
    name = Endpoint.RESPONSES if "input" in fields else Endpoint.CHAT
    draft: Draft = (await readers.read(pool, engine, name, body, fetch))[1]
    return draft


async def shown(pool: WorkerPool, engine: Engine, *parts: Any, **fields: Any) -> Draft:
    """A chat about these parts."""
    return await read(pool, engine, {"messages": [question(*parts)], **fields})


@table("padding", ["", LARGE])
async def test_a_file_with_another_hash_is_refused_by_its_part(
    pool: WorkerPool, engine: Engine, padding: str
) -> None:
    files = [a_png(color=color) for color in (RED, BLUE)]
    hashes = [sha256(file).hexdigest() for file in files]
    fields = {"messages": [question(*(picture(inline(file)) for file in files))]}
    await read(pool, engine, {**fields, "mm_hashes": hashes}, padding=padding)
    with pytest.raises(InvalidRequest, match="`mm_hashes`") as caught:
        await read(pool, engine, {**fields, "mm_hashes": [hashes[0]] * 2}, padding=padding)
    assert caught.value.param == "messages[0].content[2].image_url"


async def refusal(pool: WorkerPool, engine: Engine, *parts: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        await shown(pool, engine, *parts)
    return caught.value


@table("padding", ["", LARGE])
async def test_a_picture_is_decoded_and_takes_its_tokens(
    pool: WorkerPool, engine: Engine, padding: str
) -> None:
    fields = {"messages": [question(picture(inline(a_png())))]}
    num_killed = pool.num_killed
    draft = await read(pool, engine, fields, padding=padding)

    assert pool.num_killed == num_killed + 1, "no other client uses the process"
    (submit,) = draft.submits
    (media,) = submit.media
    (prompt,) = draft.prompts
    assert (media.height, media.width, media.num_frames) == (112, 112, 0)
    assert media.pixels == bytes(RED) * 112 * 112
    assert media.num_tokens == 16
    assert draft.media_spans == ((media.start, media.start + 16),)
    assert tuple(array("i", submit.prompt_ids)) == prompt.token_ids
    assert (draft.media.num_files, draft.media.num_pixels) == (1, 112 * 112)
    assert draft.media.num_bytes == len(a_png())
    assert draft.media.decode_s > 0


async def test_several_pictures_keep_their_order(pool: WorkerPool, engine: Engine) -> None:
    pictures = [picture(inline(a_png(56, 56, color))) for color in (RED, BLUE, RED)]
    for fields in (
        {"messages": [question(*pictures)]},
        {"input": [question(*pictures)]},
        {"messages": [question(pictures[0]), question(*pictures[1:])]},
    ):
        (submit,) = (await read(pool, engine, fields)).submits

        assert [media.pixels[:3] for media in submit.media] == [bytes(c) for c in (RED, BLUE, RED)]
        assert [media.start for media in submit.media] == sorted(m.start for m in submit.media)


async def test_a_url_is_fetched_between_the_parse_and_the_decoder(
    pool: WorkerPool, engine: Engine
) -> None:
    async def fetch(media: Sequence[MediaPart]) -> Mapping[int, InlineSource]:
        # A slow server must not keep a worker from other clients.
        assert pool.turns.num_running == 0
        of_inline = InlineSource(b"" if padding else a_png())  # a worker keeps the file
        assert [part.source for part in media] == [of_inline, UrlSource(URL)]
        return {1: InlineSource(a_png(color=BLUE))}

    for padding in ("", LARGE):
        fields = {"messages": [question(picture(inline(a_png())), picture(URL))]}
        draft = await read(pool, engine, fields, fetch, padding)

        assert [each.pixels[:3] for each in draft.submits[0].media] == [bytes(RED), bytes(BLUE)]
        assert draft.prompts[0].text is None, padding


async def test_a_text_model_refuses_before_anything_is_fetched(
    pool: WorkerPool, tmp_path: Path
) -> None:
    async def fetch(media: Sequence[MediaPart]) -> Mapping[int, InlineSource]:
        raise AssertionError("nothing may be fetched for a text model")

    for padding in ("", LARGE):
        with pytest.raises(InvalidRequest, match="takes text only") as caught:
            fields = {"messages": [question(picture(URL))]}
            await read(pool, new_engine(tmp_path), fields, fetch, padding)
        assert caught.value.param == "messages[0].content[1].image_url"


@table("data", [b"no picture at all", a_png()[:40], b"%PDF-1.4", b"\x00" * 99])
async def test_a_file_that_is_no_picture_is_refused_by_its_path(
    pool: WorkerPool, engine: Engine, data: bytes
) -> None:
    error = await refusal(pool, engine, picture(inline(a_png())), picture(inline(data)))

    assert (error.status, error.param) == (400, "messages[0].content[2].image_url")
    assert "`messages[0].content[2].image_url` " in error.message


async def test_a_file_that_ends_its_decoder_is_refused_by_its_path(
    pool: WorkerPool, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Worker.call

    async def ending(worker: Worker, job: Any, *arguments: Any, **body: Any) -> Any:
        if job is decode_media:
            raise WorkerCrashed("SIGSEGV")
        return await call(worker, job, *arguments, **body)

    monkeypatch.setattr(Worker, "call", ending)

    error = await refusal(pool, engine, picture(inline(a_png())))

    assert (error.status, error.param) == (400, "messages[0].content[1].image_url")


async def test_pages_of_a_document_are_their_text_and_their_picture(
    pool: WorkerPool, engine: Engine
) -> None:
    data = pdf(pages([words(b"Grapes"), words(b"Wine")]))
    contents = {"file_data": base64.b64encode(data).decode(), "filename": "a.pdf"}
    part = {"type": "file", "file": contents}
    # A file may be a picture.
    drawn = {"type": "file", "file": {"file_data": inline(a_png())}}
    assert (await shown(pool, engine, drawn)).submits[0].media[0].pixels[:3] == bytes(RED)
    draft = await shown(pool, engine, part, return_prompt_text=True)

    (prompt,) = draft.prompts
    assert prompt.text is not None
    first, second = (prompt.text.index(f"a.pdf, page {n} of 2:") for n in (1, 2))
    assert "Grapes" in prompt.text[first:second]
    assert "Wine" in prompt.text[second:]
    assert len(draft.submits[0].media) == 2
    assert (draft.media.num_files, draft.media.num_bytes) == (1, len(data))
    response = await read(pool, engine, {"input": [question({"type": "input_file", **contents})]})
    assert response.submits[0].media == draft.submits[0].media


def a_gif(*colors: tuple[int, int, int]) -> str:
    file = io.BytesIO()
    first, *others = (Image.new("RGB", (112, 112), color) for color in colors)
    first.save(file, "GIF", save_all=True, append_images=others, duration=500)
    return inline(file.getvalue())


async def test_an_animation_is_a_video_or_its_first_frame(pool: WorkerPool, engine: Engine) -> None:
    url = a_gif(RED, BLUE)
    moving = {"type": "video_url", "video_url": {"url": url}}
    draft = await shown(pool, engine, moving, picture(url))

    clip, first = draft.submits[0].media
    assert (clip.num_frames, first.num_frames) == (2, 0)
    assert len(clip.pixels) == 2 * clip.height * clip.width * 3
    assert clip.num_tokens == 16
    assert draft.media.num_pixels == 3 * 112 * 112


async def test_a_video_is_refused_by_a_model_for_pictures(engine: Engine) -> None:
    moving = {"type": "video_url", "video_url": {"url": a_gif(RED, BLUE)}}
    body = json.dumps({"messages": [question(moving)]}).encode()
    (part,), vision = parse(Endpoint.CHAT, body, V1).request.media, engine.assets.vision
    assert isinstance(vision, QwenProcessor)

    with pytest.raises(InvalidRequest, match="takes pictures only") as caught:
        decoded(part, None, replace(vision, takes_video=False))

    assert caught.value.param == "messages[0].content[1].video_url"


async def test_tokenizers_count_pictures(pool: WorkerPool, engine: Engine) -> None:
    for padding in ("", LARGE):
        content = [question(picture(inline(a_png())))]
        draft = await read(pool, engine, {"input": content})
        for name, fields, member in (
            ("responses/input_tokens", {"input": content}, "input_tokens"),
            ("tokenize", {"messages": content}, "count"),
        ):
            body = (json.dumps(fields) + padding).encode()
            answer = await readers.read(pool, engine, name, body)

            assert json.loads(answer)[member] == len(draft.prompts[0].token_ids)


async def test_different_pictures_are_different_requests_for_the_quarantine(
    pool: WorkerPool, engine: Engine
) -> None:
    red, blue, again = [
        await shown(pool, engine, picture(inline(a_png(color=color)))) for color in (RED, BLUE, RED)
    ]
    quarantine = Quarantine(on_add=lambda *_: None)
    quarantine.add("m", red.submits)

    assert blue.submits[0].prompt_ids == red.submits[0].prompt_ids
    quarantine.check("m", blue.submits)
    with pytest.raises(RequestQuarantined):
        quarantine.check("m", again.submits)


async def test_tokens_of_pictures_and_videos_are_counted_apart_in_the_usage(
    pool: WorkerPool, engine: Engine
) -> None:
    moving = {"type": "video_url", "video_url": {"url": a_gif(RED, BLUE)}}
    draft, meter = await shown(pool, engine, moving, picture(inline(a_png()))), Meter()
    PreparedRequest.of(draft, engine, meter, "ab" * 12)
    assert (meter.tokens.num_image_tokens, meter.tokens.num_video_tokens) == (16, 16)

    draft = await shown(pool, engine, picture(inline(a_png())))
    meter = Meter()
    PreparedRequest.of(draft, engine, meter, "ab" * 12)

    assert meter.tokens.num_image_tokens == 16
    assert meter.media.num_files == 1
    (start, end) = draft.media_spans[0]
    for num_cached, num_new in ((0, 16), (start, 16), (start + 5, 11), (end, 0), (end + 2, 0)):
        meter.tokens = replace(meter.tokens, num_cached_tokens=num_cached)
        assert meter.num_new_media_tokens == num_new
