"""Prompts with pictures for a pipeline in the test's process, without a gateway."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs
from tokenizers import Tokenizer

from tests.engine.conftest import TINY_VISION, chat_text
from tests.engine.in_process import with_logits_handler
from vinery_serving.core.request import Sampling
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.vision import VisionModel
from vinery_serving.transport.messages import MediaInput, Submit

SIDE = 28
GREEDY = {"sampling": Sampling(), "ignore_eos": True, "deadline_s": 60.0}
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
Pixels = npt.NDArray[np.uint8]  # (height, width, 3), of a video (num_frames, height, width, 3)


def a_picture(seed: int = 0, rows: int = 2, columns: int = 3) -> Pixels:
    """Noise in a size of `rows` times `columns` tokens."""
    values = np.random.default_rng(seed).integers(0, 255, (rows * SIDE, columns * SIDE, 3))
    return values.astype(np.uint8)


def a_plain_picture(value: int = 255, rows: int = 2, columns: int = 3) -> Pixels:
    return np.full((rows * SIDE, columns * SIDE, 3), value, np.uint8)


def a_video(seed: int = 0, num_frames: int = 4) -> Pixels:
    return np.stack([a_picture(seed + at) for at in range(num_frames)])


@cache
def vision_model() -> VisionModel:
    return VisionModel.read(TINY_VISION)


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TINY_VISION / "tokenizer.json"))


def ids_of(text: str) -> list[int]:
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def media_of(text: str, pictures: tuple[Pixels, ...]) -> tuple[list[int], tuple[MediaInput, ...]]:
    """Return the ids of a text in which each picture has its tokens, and the pictures."""
    model = vision_model()
    ids: list[int] = []
    media: list[MediaInput] = []
    left = list(pictures)
    for id_ in ids_of(text):
        if id_ not in (model.image_id, model.video_id):
            ids.append(id_)
            continue
        pixels = left.pop(0)
        num_frames = len(pixels) if pixels.ndim == 4 else 0
        height, width = pixels.shape[-3:-1]
        grid = (max(1, -(-num_frames // 2)), height // SIDE, width // SIDE)
        media.append(MediaInput(len(ids), grid, height, width, num_frames, pixels.tobytes()))
        ids += [id_] * media[-1].num_tokens
    assert not left
    return ids, tuple(media)


def a_submit(text: str, *pictures: Pixels, **values: Any) -> Submit:
    """Greedy decoding of 8 tokens, whatever they are, unless `values` ask for something else."""
    ids, media = media_of(chat_text(text, reasoning=""), pictures)
    prompt_ids = np.array(ids, dtype="<i4").tobytes()
    asked = {**GREEDY, "max_new_tokens": 8, **values}
    return Submit(id=1, prompt_ids=prompt_ids, media=media, **asked)


def generation_of(submit: Submit) -> Generation:
    pixels = b"".join(each.pixels for each in submit.media)
    media = tuple(structs.replace(each, pixels=b"") for each in submit.media)
    bare = structs.replace(submit, media=media)
    return with_logits_handler(Generation.of(None, bare, vision_model(), pixels))


def asked(text: str, *pictures: Pixels, **values: Any) -> Generation:
    return generation_of(a_submit(text, *pictures, **values))
