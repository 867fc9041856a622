"""What tiny-vision is trained on: its pictures, answers, regions and template are right."""

from random import Random

import numpy as np
from training.vision.drawing import SHADES, draw, draw_frames
from training.vision.labels import cell_labels
from training.vision.layout import GRIDS, Grid, patch_coordinates, patches, positions
from training.vision.questions import NO_PICTURE, about, description
from training.vision.rendering import TEMPLATE_PATH, render
from training.vision.scenes import (
    COLOURS,
    KINDS,
    TOPICS,
    Scene,
    Thing,
    blank,
    moving,
    pair,
    scene,
    several,
    single,
)
from training.vision.talks import Talk, talk

from tests.tables import table

SYSTEM = {"role": "system", "content": "Be brief."}
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


def _talks(count: int) -> list[Talk]:
    rng = Random(8)
    return [talk(rng, index % 3, 1.0, is_video=index % 7 == 6) for index in range(count)]


def test_prompts_do_not_depend_on_how_a_server_trims_blocks(environment):
    template = environment.from_string(TEMPLATE_PATH.read_text(encoding="utf-8"))

    for one in _talks(200):
        served = template.render(messages=one.messages(), add_generation_prompt=True)
        assert served == render(one.messages(), add_generation_prompt=True)


def test_pictures_stand_where_the_message_has_them_once_and_without_one_the_answer_is_that():
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

    assert _talks(50) == _talks(50)
    answers = set()
    for one in _talks(300):
        prompt = render(one.messages())
        assert prompt.count(VIDEO) == one.is_video
        assert prompt.count(IMAGE) == (0 if one.is_video else len(one.scenes))
        if not one.scenes:
            answers |= {turn.answer for turn in one.turns if turn.kind == "no picture"}

    assert answers == {NO_PICTURE}


def test_things_lie_inside_their_picture_and_in_the_third_that_their_answer_names():
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


RED_DOT = Scene("single", 1, 1, (Thing("circle", "red", 0.25, 0.75, 0.4),))


def _pixel(picture, x, y):
    height, width = picture.shape[:2]
    return picture[int(y * height), int(x * width)].astype(int)


@table("grid", GRIDS)
def test_a_picture_has_the_size_of_its_grid(grid):
    width, height = grid.pixels

    picture = draw(Random(1), blank(Random(1), width / height), width, height)

    assert picture.shape == (height, width, 3)
    assert picture.dtype == np.uint8


def test_every_colour_and_kind_is_drawn_where_it_is_and_frames_differ_where_it_moved():
    rng = Random(2)
    for _ in range(50):
        picture = draw(rng, RED_DOT, 112, 112)

        red, green, blue = _pixel(picture, 0.25, 0.75)
        assert red > 150
        assert max(green, blue) < 110
        assert abs(_pixel(picture, 0.75, 0.25) - [red, green, blue]).max() > 50

    rng = Random(3)
    for kind in KINDS[1:]:
        for colour in COLOURS:
            shown = Scene("single", 1, 1, (Thing(kind, colour, 0.5, 0.5, 0.8),))
            empty = Scene("blank", 1, 1)
            assert draw(rng, shown, 56, 56).std() > draw(rng, empty, 56, 56).std()
    assert set(SHADES) == set(COLOURS)

    moved = Scene("single", 1, 1, (Thing("circle", "red", 0.75, 0.75, 0.4),))

    first, second = draw_frames(Random(4), [RED_DOT, moved], 112, 112)

    top_first, top_second = first[:30].astype(int), second[:30].astype(int)
    assert abs(top_first - top_second).max() < 40
    assert abs(_pixel(first, 0.25, 0.75) - _pixel(second, 0.25, 0.75)).max() > 50


def test_the_four_patches_of_a_cell_lie_together():
    grid = Grid(2, 3)
    width, height = grid.pixels
    rows, columns = np.mgrid[0:height, 0:width]
    picture = np.stack((rows // 14, columns // 14, rows * 0), axis=-1).astype(np.uint8)

    found = patches(picture).reshape(-1, 3, 14 * 14)
    assert found.shape[0] == grid.num_tokens * 4
    assert np.array_equal(found[:, :2, 0], patch_coordinates(grid))
    assert (found[:, :2] == found[:, :2, :1]).all()
    assert patch_coordinates(grid)[:5].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]


def test_text_goes_on_after_the_largest_position_of_a_picture():
    media = 5

    found = positions([1, media, media, media, media, media, media, 2], (media,), Grid(2, 3), 1)
    assert found.tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4],
        [0, 1, 1, 1, 2, 2, 2, 4],
        [0, 1, 2, 3, 1, 2, 3, 4],
    ]


def test_cells_are_labelled_with_what_covers_them():
    labels = cell_labels(RED_DOT, Grid(4, 4))

    kinds = labels.kinds.reshape(4, 4)
    assert kinds[:2].tolist() == [[0] * 4, [0] * 4]
    assert kinds[2:, :2].tolist() == [[KINDS.index("circle")] * 2] * 2
    assert set(labels.colours) == {0, 1 + COLOURS.index("red")}
    assert labels.centres.sum() == 1
    assert labels.centres.reshape(4, 4)[3, 1] == 1
    rng = Random(5)
    for _ in range(200):
        shown = scene(rng, 1.0)
        assert cell_labels(shown, Grid(4, 4)).centres.sum() == len(shown.things)
