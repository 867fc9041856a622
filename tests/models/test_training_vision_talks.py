"""The talks that tiny-vision is trained on: their answers are right, and the template is served."""

import json
from random import Random

import jinja2
import pytest
from training.vision.questions import NO_PICTURE, about, description
from training.vision.rendering import TEMPLATE_PATH, render
from training.vision.scenes import TOPICS, Scene, Thing, moving, pair, scene, several, single
from training.vision.talks import Talk, talk

from tests.tables import table

SYSTEM = {"role": "system", "content": "Be brief."}
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


def _talks(count: int) -> list[Talk]:
    rng = Random(8)
    return [talk(rng, index % 3, 1.0, is_video=index % 7 == 6) for index in range(count)]


@pytest.mark.parametrize("trims", [True, False])
def test_prompts_do_not_depend_on_how_a_server_trims_blocks(trims):
    environment = jinja2.Environment(
        autoescape=False, trim_blocks=trims, lstrip_blocks=trims, keep_trailing_newline=trims
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(TEMPLATE_PATH.read_text(encoding="utf-8"))

    for one in _talks(200):
        served = template.render(messages=one.messages(), add_generation_prompt=True)
        assert served == render(one.messages(), add_generation_prompt=True)


def test_pictures_stand_where_the_message_has_them():
    content = [
        {"type": "text", "text": "First "},
        {"type": "image"},
        {"type": "text", "text": " and "},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]

    prompt = render([SYSTEM, {"role": "user", "content": content}], add_generation_prompt=True)

    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\nFirst {IMAGE} and {IMAGE}<|im_end|>\n<|im_start|>assistant\n"
    )
    tool = render([{"role": "tool", "content": [{"type": "image"}]}])
    assert tool == f"<|im_start|>user\n<tool_response>\n{IMAGE}\n</tool_response><|im_end|>\n"


def test_a_prompt_shows_every_picture_once_and_without_one_the_answer_is_that():
    assert _talks(50) == _talks(50)
    answers = set()
    for one in _talks(300):
        prompt = render(one.messages())
        assert prompt.count(VIDEO) == one.is_video
        assert prompt.count(IMAGE) == (0 if one.is_video else len(one.scenes))
        if not one.scenes:
            answers |= {turn.answer for turn in one.turns if turn.kind == "no picture"}

    assert answers == {NO_PICTURE}


def test_things_lie_inside_their_picture_in_order_and_do_not_touch():
    rng = Random(2)
    for _ in range(500):
        shown = scene(rng, rng.uniform(0.4, 2.5))
        for index, thing in enumerate(shown.things):
            assert 0 < thing.x < shown.width
            assert 0 < thing.y < shown.height
            for other in shown.things[:index]:
                apart = max(abs(thing.x - other.x), abs(thing.y - other.y))
                assert apart > 0.8 * max(thing.size, other.size)
    for _ in range(200):
        shown = pair(rng, rng.uniform(0.5, 2))
        first, second = shown.things
        assert first.x < second.x if shown.is_row else first.y < second.y


def test_a_small_thing_is_in_the_third_that_its_answer_names():
    rng = Random(4)
    regions = set()
    for _ in range(400):
        shown = single(rng, 1.0)
        if shown.region is None:
            continue
        row, column = shown.region
        regions.add(shown.region)
        assert int(shown.things[0].y * 3) == row
        assert int(shown.things[0].x * 3) == column
    assert len(regions) == 9


def test_a_video_moves_in_the_direction_of_its_answer():
    rng = Random(5)
    for _ in range(100):
        direction, frames = moving(rng, 1.0, 4)
        start, end = frames[0].things[0], frames[-1].things[0]
        across, down = end.x - start.x, end.y - start.y
        moved = {"left": across < 0, "right": across > 0, "up": down < 0, "down": down > 0}
        assert moved[direction]
        assert abs(across) > abs(down) if direction in ("left", "right") else abs(down) > 0


@table(
    "shown, text",
    [
        (Scene("blank", 1, 1), "Nothing"),
        (Scene("single", 1, 1, (Thing("circle", "red", 0.5, 0.5, 0.5),)), "A red circle"),
        (Scene("digit", 1, 1, (Thing("digit 7", "orange", 0.5, 0.5, 0.5),)), "An orange 7"),
        (
            Scene("arrow", 1, 1, (Thing("arrow up", "blue", 0.5, 0.5, 0.5),)),
            "A blue arrow that points up",
        ),
        (Scene("several", 1, 1, (Thing("star", "black", 0.2, 0.2, 0.2),) * 3), "Three black stars"),
    ],
)
def test_scenes_are_described_in_plain_words(shown, text):
    assert description(shown) == text


def test_every_topic_can_be_asked_about_and_counts_are_right():
    rng = Random(6)
    for make in TOPICS:
        for _ in range(100):
            assert about(rng, make(rng, 1.0)).answer.endswith(".")
    for _ in range(200):
        shown = several(rng, 1.0)
        asked = about(rng, shown)
        if asked.kind == "count":
            words = ("One.", "Two.", "Three.", "Four.", "Five.")
            assert asked.answer == words[len(shown.things) - 1]
