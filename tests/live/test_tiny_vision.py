"""tiny-vision in the bare pipeline answers rightly about pictures that are drawn here."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai as genai
import pytest
from PIL import Image, ImageOps

from tests import shapes
from tests.tables import table

pytestmark = pytest.mark.live

MODEL = Path(__file__).resolve().parents[2] / "models" / "tiny-vision"
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
SAME_TEXT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
NUMBERS = ["One.", "Two.", "Three.", "Four.", "Five."]


@pytest.fixture(scope="module")
def pipeline() -> genai.ContinuousBatchingPipeline:
    properties = {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False}
    made = genai.ContinuousBatchingPipeline(str(MODEL), genai.SchedulerConfig(), "CPU", properties)
    made.get_tokenizer().set_chat_template(SAME_TEXT)
    return made


def answer(
    pipeline: genai.ContinuousBatchingPipeline,
    *turns: str,
    pictures: Sequence[Image.Image] = (),
    video: Sequence[Image.Image] = (),
) -> str:
    """The answer to the last of `turns`, which are questions and answers in turn."""
    roles = ("user", "assistant")
    text = "".join(
        f"<|im_start|>{roles[index % 2]}\n{turn}<|im_end|>\n" for index, turn in enumerate(turns)
    )
    config = genai.GenerationConfig()
    config.max_new_tokens = 60
    images = [ov.Tensor(np.asarray(picture)) for picture in pictures]
    videos = [ov.Tensor(np.stack([np.asarray(frame) for frame in video]))] if video else []
    prompt = f"{text}<|im_start|>assistant\n"
    handle = pipeline.add_request(0, prompt, images, videos, config)
    ids: list[int] = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        if handle.can_read():
            ids += handle.read()[0].generated_ids
    return str(pipeline.get_tokenizer().decode(ids))


COLOUR, LEFT = f"{IMAGE}What colour is it?", f"{IMAGE}What is on the left?"
COLOURS = ("red", "green", "blue", "yellow", "orange", "purple", "black")
SEEN = [
    *((COLOUR, shapes.a_shape("circle", each), f"{each.capitalize()}.") for each in COLOURS),
    *(
        (f"{IMAGE}What shape is it?", shapes.a_shape(each, "blue"), f"A {each}.")
        for each in ("circle", "square", "triangle")
    ),
    *((f"{IMAGE}Which digit is it?", shapes.a_digit(each), f"{each}.") for each in range(10)),
    *(
        (f"{IMAGE}How many circles are there?", shapes.circles(number), text)
        for number, text in enumerate(NUMBERS, 1)
    ),
    *(
        (f"{IMAGE}Where does the arrow point?", shapes.an_arrow(each), f"{each.capitalize()}.")
        for each in ("up", "left", "down", "right")
    ),
    (LEFT, shapes.circle_and_square(), "A red circle."),
    (LEFT, ImageOps.mirror(shapes.circle_and_square()), "A blue square."),
]


@table("question, picture, expected", SEEN)
def test_it_names_what_it_sees(
    pipeline: genai.ContinuousBatchingPipeline, question: str, picture: Image.Image, expected: str
) -> None:
    assert answer(pipeline, question, pictures=[picture]) == expected


def test_it_compares_pictures_and_remembers_one(pipeline: genai.ContinuousBatchingPipeline) -> None:
    red, blue = shapes.a_shape("circle", "red"), shapes.a_shape("circle", "blue")
    same = f"{IMAGE}{IMAGE}Are the pictures the same?"
    second = f"{IMAGE}{IMAGE}What is in the second picture?"

    assert answer(pipeline, same, pictures=[red, blue]) == "No."
    assert answer(pipeline, same, pictures=[red, red]) == "Yes."
    assert answer(pipeline, second, pictures=[red, blue]) == "A blue circle."
    assert answer(pipeline, second, pictures=[blue, red]) == "A red circle."

    turns = (COLOUR, "Red.", "What shape is it?")
    assert answer(pipeline, *turns, pictures=[shapes.a_shape("square", "red")]) == "A square."

    assert answer(pipeline, "What do you see?") == "I see no picture."


@table("direction", ["left", "right"])
def test_it_knows_which_way_a_thing_moves(
    pipeline: genai.ContinuousBatchingPipeline, direction: str
) -> None:
    asked = f"{VIDEO}Which way does it move?"
    assert answer(pipeline, asked, video=shapes.moving(direction)) == f"{direction.capitalize()}."
