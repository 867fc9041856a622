"""What tiny-vision answers through the API about pictures that are drawn here.

A picture that is dropped, swapped, turned, mirrored or scaled wrongly gives another answer.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from PIL import Image, ImageOps

from tests import shapes
from tests.conftest import Running
from tests.media.videos import video
from tests.shapes import data_url, encoded
from tests.system.clients import openai_of, serving
from tests.tables import table

pytestmark = pytest.mark.system

NAME = "tiny-vision"
COLOUR = "What colour is it?"
CONTENT = "What is in the picture?"
ORIENTATION = 0x0112  # EXIF's tag


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[openai.OpenAI]:
    with serving(running, {NAME: [NAME]}):
        yield openai_of(running)


def image(picture: Image.Image | bytes, detail: str = "auto") -> dict[str, Any]:
    data = picture if isinstance(picture, bytes) else encoded(picture)
    return {"type": "image_url", "image_url": {"url": data_url(data), "detail": detail}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def answer(client: openai.OpenAI, *parts: dict[str, Any], **fields: Any) -> str:
    """The answer to one message."""
    return answer_to(client, [{"role": "user", "content": list(parts)}], **fields)


def answer_to(client: openai.OpenAI, messages: Any, **fields: Any) -> str:
    done = client.chat.completions.create(model=NAME, messages=messages, max_tokens=30, **fields)
    return done.choices[0].message.content or ""


def test_a_picture_is_described_and_its_absence_noticed(client: openai.OpenAI) -> None:
    picture = shapes.a_shape("circle", "red")

    assert answer(client, text(CONTENT), image(picture)) == "A red circle."
    assert answer(client, image(picture), text(COLOUR)) == "Red."
    assert answer(client, text(CONTENT)) == "I see no picture."


def test_a_stream_describes_it_too(client: openai.OpenAI) -> None:
    content = [text(CONTENT), image(shapes.a_shape("square", "green"))]
    messages: Any = [{"role": "user", "content": content}]
    stream = client.chat.completions.create(model=NAME, messages=messages, stream=True)

    words = [each.choices[0].delta.content or "" for each in stream if each.choices]

    assert "".join(words) == "A green square."


@table("digit", [3, 6, 9])
def test_a_digit_is_read(client: openai.OpenAI, digit: int) -> None:
    assert answer(client, image(shapes.a_digit(digit)), text("Which digit is it?")) == f"{digit}."


def test_left_is_not_right(client: openai.OpenAI) -> None:
    picture = shapes.circle_and_square()
    asked = text("What is on the left?")

    assert answer(client, image(picture), asked) == "A red circle."
    assert answer(client, image(ImageOps.mirror(picture)), asked) == "A blue square."


@table("number", [1, 3, 5])
def test_things_are_counted_in_a_picture_of_any_size(client: openai.OpenAI, number: int) -> None:
    picture = shapes.circles(number)
    asked = text("How many circles are there?")
    words = {1: "One.", 3: "Three.", 5: "Five."}[number]

    for side in (56 * 3, 112, 1500):
        assert answer(client, image(picture.resize((side, side))), asked) == words


def test_a_wide_picture_keeps_its_proportions(client: openai.OpenAI) -> None:
    picture = Image.new("RGB", (1200, 600), "white")
    shapes.draw(picture, "circle", "red", (100, 150, 400, 450))
    shapes.draw(picture, "square", "blue", (800, 150, 1100, 450))

    assert answer(client, image(picture), text("What is on the right?")) == "A blue square."
    assert answer(client, image(picture), text("What is on the left?")) == "A red circle."


# Every format, kind of pixel and orientation: tests/media/test_decoding_pictures.py
def test_a_picture_is_turned_as_its_camera_was(client: openai.OpenAI) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    stored = shapes.an_arrow("right").rotate(90, expand=True)
    data = encoded(stored, "JPEG", quality=95, exif=exif)

    assert answer(client, image(data), text("Where does the arrow point?")) == "Right."


def test_two_pictures_keep_their_order(client: openai.OpenAI) -> None:
    red, blue = (image(shapes.a_shape("circle", colour)) for colour in ("red", "blue"))
    second, same = text("What is in the second picture?"), text("Are the pictures the same?")

    assert answer(client, red, blue, second) == "A blue circle."
    assert answer(client, blue, red, second) == "A red circle."
    assert answer(client, red, blue, same) == "No."
    assert answer(client, red, red, same) == "Yes."
    assert answer(client, text("Which picture shows a blue circle?"), red, blue) == "The second."


def test_a_follow_up_is_about_the_same_picture_whose_tokens_are_cached(
    client: openai.OpenAI,
) -> None:
    messages: Any = [
        {"role": "user", "content": [image(shapes.a_shape("square", "yellow")), text(COLOUR)]},
        {"role": "assistant", "content": "Yellow."},
        {"role": "user", "content": "What shape is it?"},
    ]

    assert answer_to(client, messages[:1]) == "Yellow."
    done = client.chat.completions.create(model=NAME, messages=messages)

    assert done.choices[0].message.content == "A square."
    assert done.usage is not None
    details: Any = done.usage.prompt_tokens_details
    assert details.cached_tokens >= details.image_tokens == 16


def test_pictures_of_several_turns_are_distinguished(client: openai.OpenAI) -> None:
    messages = [
        {"role": "user", "content": [image(shapes.a_shape("circle", "red")), text(COLOUR)]},
        {"role": "assistant", "content": "Red."},
        {
            "role": "user",
            "content": [
                image(shapes.a_shape("circle", "blue")),
                text("Are the pictures the same?"),
            ],
        },
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "What is in the first picture?"},
    ]

    assert answer_to(client, messages) == "A red circle."
    assert answer_to(client, messages[:3]) == "No."


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SHOWN_BY_OTHERS = {
    "a tool": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": [image(shapes.a_shape("circle", "green"))],
        },
        {"role": "assistant", "content": "I see it."},
    ],
    "the assistant": [
        {"role": "user", "content": "Show me a picture."},
        {"role": "assistant", "content": [image(shapes.a_shape("triangle", "green"))]},
    ],
}


@table("who", SHOWN_BY_OTHERS)
def test_a_picture_may_come_from_others(client: openai.OpenAI, who: str) -> None:
    asked = {"role": "user", "content": COLOUR}

    assert answer_to(client, [*SHOWN_BY_OTHERS[who], asked]) == "Green."


@table("direction", ["left", "right"])
def test_a_video_runs_forwards(client: openai.OpenAI, direction: str) -> None:
    film = video(shapes.moving(direction), rate=2)
    part = {"type": "video_url", "video_url": {"url": data_url(film, "video/mp4")}}

    assert answer(client, part, text("Which way does it move?")) == f"{direction.capitalize()}."


@table("form", ["GIF", "PNG", "WEBP"])
def test_an_animation_is_a_video_or_its_first_frame(client: openai.OpenAI, form: str) -> None:
    first, *others = shapes.moving("right")
    lossless = {"lossless": True} if form == "WEBP" else {}
    data = encoded(first, form, save_all=True, append_images=others, duration=500, **lossless)
    url = data_url(data, f"image/{form.lower()}")
    film = {"type": "video_url", "video_url": {"url": url}}
    picture = {"type": "image_url", "image_url": {"url": url}}

    assert answer(client, film, text("Which way does it move?")) == "Right."
    assert answer(client, picture, text("Where is the circle?")) == "On the left."


def test_a_document_shows_its_page(client: openai.OpenAI) -> None:
    document = encoded(shapes.a_shape("circle", "red"), "PDF")
    part = {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": data_url(document, "application/pdf")},
    }

    assert answer(client, part, text(COLOUR)) == "Red."


def test_responses_see_what_chat_sees(client: openai.OpenAI) -> None:
    url = data_url(encoded(shapes.an_arrow("up")))
    content: Any = [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": "Where does the arrow point?"},
    ]
    response = client.responses.create(model=NAME, input=[{"role": "user", "content": content}])

    assert response.output_text == "Up."
    assert response.usage is not None
    details: Any = response.usage.input_tokens_details
    assert details.image_tokens == 16


def test_anthropics_client_sees_what_openais_sees(client: openai.OpenAI, running: Running) -> None:
    claude = anthropic.Anthropic(
        base_url=running.base_url, api_key=running.api_key, max_retries=0, timeout=60
    )
    data = base64.b64encode(encoded(shapes.an_arrow("down"))).decode()
    content: Any = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "text", "text": "Where does the arrow point?"},
    ]
    message = claude.messages.create(
        model=NAME, max_tokens=20, messages=[{"role": "user", "content": content}]
    )

    assert [block.text for block in message.content if block.type == "text"] == ["Down."]


def test_low_detail_takes_fewer_tokens_and_still_shows_the_colour(client: openai.OpenAI) -> None:
    picture = shapes.a_shape("circle", "purple").resize((800, 800))
    low, high = (
        client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": [image(picture, detail), text(COLOUR)]}],  # type: ignore[list-item, misc]
        )
        for detail in ("low", "high")
    )

    assert low.choices[0].message.content == high.choices[0].message.content == "Purple."
    assert low.usage is not None
    assert high.usage is not None
    assert low.usage.prompt_tokens <= high.usage.prompt_tokens


def test_models_list_which_of_them_sees(client: openai.OpenAI) -> None:
    sees = {
        model.id: model.model_dump()["capabilities"]["vision"] for model in client.models.list()
    }

    assert sees == {NAME: True, "tiny-chat": False}
