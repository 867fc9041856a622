"""Shows a vision model known pictures, to learn whether the device lets it see.

Some drivers compute vision models wrongly, and then a model answers as if all pictures were alike.
The test draws pictures that differ strongly. The same picture must give the same token with the
same probability, and another picture another one.
"""

import logging
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.vision import VisionModel, VisionPrompt
from vinery_serving.transport.messages import MediaInput

logger = logging.getLogger(__name__)

# Of log-probabilities. The order of additions differs between two runs, and pictures differ more.
_EQUAL: Final = 1e-3
_FIRST_TOKENS: Final = 4  # before the picture; which ones does not matter

_Pixels = npt.NDArray[np.uint8]  # (side, side, 3)
_Seen = tuple[int, float]  # the likeliest token behind a picture, and its log-probability


@dataclass(frozen=True, slots=True)
class PictureTest:
    passed: bool
    summary: str  # a sentence for administrators


def show_pictures(pipeline: Pipeline) -> PictureTest:
    """Return what a vision model makes of the pictures. Raises RuntimeError if OpenVINO GenAI gives
    a picture another number of tokens than Vinery."""
    model = pipeline.vision
    assert model is not None
    seen = {
        name: (_see(pipeline, model, each), _see(pipeline, model, each))
        for name, each in drawn(_side(model)).items()
    }
    unstable = [name for name, (first, second) in seen.items() if not _are_equal(first, second)]
    if unstable:
        return PictureTest(False, f"The same picture looks different twice: {', '.join(unstable)}.")
    pairs = list(combinations(seen, 2))
    alike = [pair for pair in pairs if _are_equal(seen[pair[0]][0], seen[pair[1]][0])]
    if alike:
        named = "; ".join(f"{one} and {other}" for one, other in alike)
        return PictureTest(False, f"Some different pictures look alike to the model: {named}.")
    return PictureTest(True, f"All {len(seen)} test pictures look different to the model.")


def drawn(side: int) -> dict[str, _Pixels]:
    """Return pictures of `side` x `side` pixels by their names."""
    red, blue = (np.zeros((side, side, 3), np.uint8) for _ in range(2))
    red[..., 0] = blue[..., 2] = 255
    left = np.zeros((side, side, 3), np.uint8)
    left[:, : side // 2] = 255
    ys, xs = np.indices((side, side)) - side / 2
    circle = np.where((ys**2 + xs**2 < (side / 3) ** 2)[..., None], red, np.uint8(255))
    return {
        "red": red,
        "blue": blue,
        "white on the left": left,
        "white on the right": np.ascontiguousarray(left[:, ::-1]),
        "a red circle": np.ascontiguousarray(circle),
    }


def _side(model: VisionModel) -> int:
    """The least multiple of a token's square that GenAI does not scale."""
    squares = max(2, -(-int(np.ceil(np.sqrt(model.least_pixels))) // model.side))
    return squares * model.side


def _see(pipeline: Pipeline, model: VisionModel, pixels: _Pixels) -> _Seen:
    squares = len(pixels) // model.side
    start = _FIRST_TOKENS + 1
    media = MediaInput(start, (1, squares, squares), *pixels.shape[:2])
    ids = [model.end_id] * _FIRST_TOKENS
    ids += [model.start_id, *[model.image_id] * media.num_tokens, model.end_id]
    prompt_ids = np.array(ids, np.int64)
    vision = VisionPrompt(model, len(ids), (media,), pixels.tobytes())
    return pipeline.first_token(prompt_ids, vision)


def _are_equal(one: _Seen, other: _Seen) -> bool:
    return one[0] == other[0] and abs(one[1] - other[1]) < _EQUAL
