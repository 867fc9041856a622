"""Answers of tiny-vision through the API about pictures that are drawn here.

A picture that is dropped, swapped, turned, mirrored or scaled wrongly gives another answer.
"""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from PIL import Image, ImageOps

from tests import shapes
from tests.conftest import Running
from tests.media.videos import video
from tests.shapes import data_url, encoded
from tests.system.clients import openai_of, serving

NAME = "tiny-vision"
COLOUR = "What colour is it?"
CONTENT = "What is in the picture?"
LEFT = {"type": "text", "text": "What is on the left?"}
SAME = {"type": "text", "text": "Are the pictures the same?"}
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
    return answer_to(client, [{"role": "user", "content": list(parts)}], **fields)


def answer_to(client: openai.OpenAI, messages: Any, **fields: Any) -> str:
    done = client.chat.completions.create(model=NAME, messages=messages, max_tokens=30, **fields)
    return done.choices[0].message.content or ""


def test_a_picture_is_described_in_streams_too_and_missed(client: openai.OpenAI) -> None:
    picture = shapes.a_shape("circle", "red")

    assert answer(client, text(CONTENT), image(picture)) == "A red circle."
    assert answer(client, image(picture), text(COLOUR)) == "Red."
    assert answer(client, text(CONTENT)) == "I see no picture."

    content = [text(CONTENT), image(shapes.a_shape("square", "green"))]
    messages: Any = [{"role": "user", "content": content}]
    stream = client.chat.completions.create(model=NAME, messages=messages, stream=True)
    words = [each.choices[0].delta.content or "" for each in stream if each.choices]
    assert "".join(words) == "A green square."


def test_digits_sides_numbers_and_directions_are_seen_at_any_size(client: openai.OpenAI) -> None:
    for digit in (3, 6, 9):
        picture = image(shapes.a_digit(digit))
        assert answer(client, picture, text("Which digit is it?")) == f"{digit}."

    sides = shapes.circle_and_square()
    assert answer(client, image(sides), LEFT) == "A red circle."
    assert answer(client, image(ImageOps.mirror(sides)), LEFT) == "A blue square."

    wide = Image.new("RGB", (1200, 600), "white")
    shapes.draw(wide, "circle", "red", (100, 150, 400, 450))
    shapes.draw(wide, "square", "blue", (800, 150, 1100, 450))
    assert answer(client, image(wide), text("What is on the right?")) == "A blue square."
    assert answer(client, image(wide), LEFT) == "A red circle."

    asked = text("How many circles are there?")
    for number, words in ((1, "One."), (3, "Three."), (5, "Five.")):
        for side in (56 * 3, 112, 1500):
            picture = image(shapes.circles(number).resize((side, side)))
            assert answer(client, picture, asked) == words, side

    # Every format, kind of pixel and orientation: tests/media/test_decoding_pictures.py
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    stored = shapes.an_arrow("right").rotate(90, expand=True)
    data = encoded(stored, "JPEG", quality=95, exif=exif)

    assert answer(client, image(data), text("Where does the arrow point?")) == "Right."


def test_pictures_of_one_turn_or_more_are_distinguished_and_cached(client: openai.OpenAI) -> None:
    red, blue = (image(shapes.a_shape("circle", colour)) for colour in ("red", "blue"))
    second = text("What is in the second picture?")

    assert answer(client, red, blue, second) == "A blue circle."
    assert answer(client, blue, red, second) == "A red circle."
    assert answer(client, red, blue, SAME) == "No."
    assert answer(client, red, red, SAME) == "Yes."
    assert answer(client, text("Which picture shows a blue circle?"), red, blue) == "The second."

    turns = [
        {"role": "user", "content": [red, text(COLOUR)]},
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": [blue, SAME]},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "What is in the first picture?"},
    ]

    assert answer_to(client, turns) == "A red circle."
    assert answer_to(client, turns[:3]) == "No."

    messages: Any = [
        {"role": "user", "content": [image(shapes.a_shape("square", "yellow")), text(COLOUR)]},
        {"role": "assistant", "content": "Yellow."},
        {"role": "user", "content": "What shape is it?"},
    ]

    assert answer_to(client, messages[:1]) == "Yellow."
    done = client.chat.completions.create(model=NAME, messages=messages)

    assert done.choices[0].message.content == "A square."
    details = done.usage.prompt_tokens_details
    assert details.cached_tokens >= details.image_tokens == 16


def test_films_run_forwards_and_animations_are_films_or_pictures(client: openai.OpenAI) -> None:
    def film(url: str) -> dict[str, Any]:
        return {"type": "video_url", "video_url": {"url": url}}

    asked = text("Which way does it move?")
    for direction in ("left", "right"):
        url = data_url(video(shapes.moving(direction), rate=2), "video/mp4")
        assert answer(client, film(url), asked) == f"{direction.capitalize()}."

    first, *others = shapes.moving("right")
    for form, options in (("GIF", {}), ("PNG", {}), ("WEBP", {"lossless": True})):
        data = encoded(first, form, save_all=True, append_images=others, duration=500, **options)
        url = data_url(data, f"image/{form.lower()}")
        picture = {"type": "image_url", "image_url": {"url": url}}
        assert answer(client, film(url), asked) == "Right.", form
        assert answer(client, picture, text("Where is the circle?")) == "On the left.", form
