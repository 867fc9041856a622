"""Shows a vision model known pictures, to learn whether the device lets it see.

Some drivers compute vision models wrongly, and then a model answers as if all pictures were alike.
The test draws pictures that differ strongly. The same picture must give the same token with the
same probability, and another picture another one.

The pictures run in the batch, one at a time and beside requests of clients.
"""

import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from vinery_serving.core.request import Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import FailedGeneration, Generation
from vinery_serving.engine.vision import VisionModel
from vinery_serving.transport.messages import PicturesTested, Submit
from vinery_serving.transport.server import Connection

logger = logging.getLogger(__name__)

# Of log-probabilities. The order of additions differs between two runs, and pictures differ more.
_EQUAL: Final = 1e-3
_FIRST_TOKENS: Final = 4  # before the picture; which ones does not matter
_FIRST_ID: Final = 3  # theirs, if the model has none that ends a picture
_TIMEOUT_S: Final = 60.0  # of a test beside requests
_TIMES: Final = 2  # that each picture is shown

_Pixels = npt.NDArray[np.uint8]  # (height, width, 3)
_Seen = tuple[int, float]  # the likeliest token behind a picture, and its log-probability


@dataclass(frozen=True, slots=True)
class PictureResult:
    failure: str  # a sentence for administrators; empty: the model distinguishes all pictures
    is_finished: bool = True


_NO_VISION: Final = "The model takes text only, so there is no picture to show."


class PictureTests:
    def __init__(self, model: VisionModel | None, batch: Batch) -> None:
        self._model = model
        self._batch = batch
        self._ends_at = math.inf  # of the monotonic clock
        # Of one test: what the prefix cache has of an earlier one proves nothing.
        self._cache_key = b""
        self._left: list[tuple[str, _Pixels]] = []
        self._seen: defaultdict[str, list[_Seen]] = defaultdict(list)
        self._shown = ""  # the name of the picture that runs
        self._generation: Generation | None = None  # its answer
        self._waiting: list[tuple[Connection, int]] = []
        self.is_running = False
        self.newest: PictureResult | None = None  # None: of a text model

    def begin(self, timeout_s: float = _TIMEOUT_S) -> None:
        if self.is_running or self._model is None:
            return
        size = self._model.grid.smallest()
        pictures = drawn(size.height, size.width).items()
        self._left = [(name, pixels) for name, pixels in pictures for _ in range(_TIMES)]
        self._seen.clear()
        self._cache_key = os.urandom(16)
        self._ends_at = time.monotonic() + timeout_s
        self.is_running = True

    def ask(self, connection: Connection, nonce: int) -> None:
        """Test the model, and send the result to a connection."""
        if self._model is None:
            connection.send(PicturesTested(nonce, _NO_VISION))
            return
        self._waiting.append((connection, nonce))
        self.begin()

    def forget(self, connection: Connection) -> None:
        self._waiting = [each for each in self._waiting if each[0] is not connection]

    def join(self) -> None:
        """Add the next picture if none runs and the batch has room, or give up."""
        if not self.is_running:
            return
        if time.monotonic() > self._ends_at:
            if self._generation is not None:
                self._batch.remove(self._generation)
            self._give_up(f"The test did not end within {_TIMEOUT_S:g} s. Try it again.")
        elif self._generation is None and self._batch.has_free_slot:
            self._show_next()

    def take(self, generation: Generation, token_ids: Sequence[int]) -> None:
        """Take the token behind a picture, if the generation is of the test."""
        if generation is not self._generation:
            return
        assert generation.handle is not None
        num_counted, num_tokens = generation.handle.num_prompt_tokens, len(generation.prompt_ids)
        if num_counted != num_tokens:
            self._give_up(
                f"OpenVINO GenAI counts {num_counted} tokens where Vinery counts {num_tokens}: "
                "the sizes in the folder's preprocessor_config.json do not fit."
            )
            return
        self._seen[self._shown].append((token_ids[0], generation.handle.logprob or 0.0))
        self._generation = None
        if not self._left:
            self._settle(PictureResult(failure_of(self._seen)))

    def take_failure(self, failed: FailedGeneration) -> bool:
        """Return whether the failed generation belongs to the test, which it then ends."""
        is_own = failed.generation is self._generation
        if is_own:
            self._give_up(f"A test picture failed: {failed.reason or failed.message}")
        return is_own

    def _show_next(self) -> None:
        assert self._model is not None
        name, pixels = self._left[0]
        submit = _submit(self._model, pixels, self._cache_key)
        generation = Generation.of(None, submit, self._model, pixels.tobytes())
        generation.is_picture_test = True
        if not self._batch.may_join(generation):
            return
        del self._left[0]
        self._shown, self._generation = name, generation
        failed = self._batch.add(generation)
        if failed is not None:
            self.take_failure(failed)

    def _give_up(self, reason: str) -> None:
        self._generation = None
        self._settle(PictureResult(reason, is_finished=False))

    def _settle(self, result: PictureResult) -> None:
        self.is_running = False
        log = logger.warning if result.failure else logger.info
        log("picture test", extra={"fields": asdict(result)})
        if result.is_finished or self.newest is None:
            self.newest = result
        for connection, nonce in self._waiting:
            connection.send(PicturesTested(nonce, result.failure))
        self._waiting.clear()


def failure_of(seen: Mapping[str, Sequence[_Seen]]) -> str:
    unstable = [
        name for name, (first, *rest) in seen.items() if not all(_are_equal(first, e) for e in rest)
    ]
    if unstable:
        return f"The same picture looks different twice: {', '.join(unstable)}."
    pairs = list(combinations(seen, 2))
    alike = [pair for pair in pairs if _are_equal(seen[pair[0]][0], seen[pair[1]][0])]
    if alike:
        named = "; ".join(f"{one} and {other}" for one, other in alike)
        return f"Some different pictures look alike to the model: {named}."
    return ""


def drawn(height: int, width: int) -> dict[str, _Pixels]:
    red, blue = (np.zeros((height, width, 3), np.uint8) for _ in range(2))
    red[..., 0] = blue[..., 2] = 255
    left = np.zeros((height, width, 3), np.uint8)
    left[:, : width // 2] = 255
    ys, xs = np.indices((height, width))
    from_centre = (ys - height / 2) ** 2 + (xs - width / 2) ** 2
    is_inside = from_centre < (min(height, width) / 3) ** 2
    circle = np.where(is_inside[..., None], red, np.uint8(255))
    return {
        "red": red,
        "blue": blue,
        "white on the left": left,
        "white on the right": np.ascontiguousarray(left[:, ::-1]),
        "a red circle": np.ascontiguousarray(circle),
    }


def _submit(model: VisionModel, pixels: _Pixels, cache_key: bytes) -> Submit:
    start = _FIRST_TOKENS + model.num_framing
    media = structs.replace(model.grid.smallest(), start=start)
    ids = [_FIRST_ID if model.end_id is None else model.end_id] * _FIRST_TOKENS
    pads = [model.image_id] * media.num_tokens
    framed = (model.start_id, *pads, model.end_id)
    ids += [id_ for id_ in framed if id_ is not None]
    return Submit(
        id=0,
        prompt_ids=np.array(ids, "<i4").tobytes(),
        sampling=Sampling(),
        max_new_tokens=1,
        deadline_s=_TIMEOUT_S,
        ignore_eos=True,
        cache_key=cache_key,
        media=(media,),
    )


def _are_equal(one: _Seen, other: _Seen) -> bool:
    return one[0] == other[0] and abs(one[1] - other[1]) < _EQUAL
