"""Small random models of the vision families, unpacked, and prompts with their pictures."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import structs

from tests.engine.in_process import LOGPROBS, with_logits_handler
from tests.engine.pictures import GREEDY, Pixels
from vinery_serving.core.media import Detail
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.vision import SizedGrid, VisionModel
from vinery_serving.transport.messages import MediaInput, Submit

ARCHIVES: Final = Path(__file__).parent / "families"
# In pixels. The third is chosen for pictures that fill neither of its sides; none is symmetric.
PINPOINTS: Final = [[56, 112], [168, 56], [112, 168], [224, 112]]


@dataclass(frozen=True)
class Change:
    """How a folder becomes another family's folder with the same graphs."""

    archive: str
    config: dict[str, Any]
    processor: dict[str, Any]
    template: str = ""  # the archive's


FAMILIES: Final = {
    "gemma3": Change("gemma3", {}, {}),
    "llava": Change("llava", {}, {}),
    "llava_next": Change(
        "llava",
        # GenAI reads the embedding of its line breaks from here.
        {"model_type": "llava_next", "image_newline": [0.5, -0.5] * 16},
        {"image_grid_pinpoints": PINPOINTS},
    ),
    "internvl_chat": Change(
        "llava",
        {"model_type": "internvl_chat", "force_image_size": 56, "downsample_ratio": 1.0},
        {},
        "internvl_chat",
    ),
}


def a_family_folder(name: str, target: Path) -> Path:
    """Unpack the model of a family into `target`."""
    change = FAMILIES[name]
    with tarfile.open(ARCHIVES / f"{change.archive}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    for file, values in (
        ("config.json", change.config),
        ("preprocessor_config.json", change.processor),
    ):
        path = target / file
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
    # As the families' templates show pictures; InternVL's takes texts alone.
    template = ARCHIVES / f"{change.template or change.archive}.jinja"
    (target / "chat_template.jinja").write_text(template.read_text())
    return target


def fitted_size(
    model: VisionModel,
    width: int,
    height: int,
    detail: Detail = Detail.AUTO,
    max_pixels: int = 60_000,
) -> tuple[int, int]:
    """The width and height to which a picture of these is scaled."""
    if isinstance(model.grid, SizedGrid):
        return model.grid.sizes.fit(width, height, detail, max_pixels)
    side = model.grid.side
    across, down = (side * min(4, max(2, each // side)) for each in (width, height))
    return across, down


def grid_of(model: VisionModel, width: int, height: int) -> tuple[int, int, int]:
    if isinstance(model.grid, SizedGrid):
        return 1, 1, model.grid.sizes.num_tokens(width, height)
    return 1, height // model.grid.side, width // model.grid.side


def noise(seed: int, width: int, height: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3)).astype(np.uint8)


def a_fitted_picture(model: VisionModel, seed: int, width: int = 60, height: int = 90) -> Pixels:
    """Noise in the size to which a picture of this width and height is scaled."""
    return noise(seed, *fitted_size(model, width, height))


def a_prompt(model: VisionModel, *parts: str | list[int] | Pixels, **values: Any) -> Generation:
    """A prompt of texts, a token for each byte, of ids and of pictures; greedy decoding of 6
    tokens."""
    ids: list[int] = []
    media: list[MediaInput] = []
    pixels = b""
    for part in parts:
        if isinstance(part, str):
            ids += [20 + byte for byte in part.encode()]
            continue
        if isinstance(part, list):
            ids += part
            continue
        height, width = part.shape[:2]
        start = len(ids) + model.num_framing
        media.append(MediaInput(start, grid_of(model, width, height), height, width))
        shown = (model.start_id, *[model.image_id] * media[-1].num_tokens, model.end_id)
        ids += [id_ for id_ in shown if id_ is not None]
        pixels += part.tobytes()
    asked = {**GREEDY, "max_new_tokens": 6, "logits": LOGPROBS, **values}
    submit = Submit(1, np.array(ids, "<i4").tobytes(), media=tuple(media), **asked)
    return with_logits_handler(Generation.of(None, submit, model, pixels))


def with_media(generation: Generation, **changes: Any) -> tuple[MediaInput, ...]:
    """The only picture of a prompt, changed."""
    return (structs.replace(generation.submit.media[0], **changes),)
