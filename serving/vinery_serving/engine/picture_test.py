"""Shows a vision model known pictures, to learn whether the device lets it see.

Some drivers compute vision models wrongly, and then a model answers as if all pictures were alike.
The test draws pictures that differ strongly. The same picture must give the same token with the
same probability, and another picture another one.

The pictures run in the batch, one at a time and beside requests of clients.
"""

import logging
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
from vinery_serving.transport.messages import (
    PicturesTested,
    Submit,
)
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


class PictureTest:
    """One run over the pictures. `result` is set at its end."""

    def __init__(self, model: VisionModel, timeout_s: float | None = None) -> None:
        """None: it takes as long as it takes."""
        self._model = model
        self._timeout_s = timeout_s
        self._begun_at = time.monotonic()
        # Of this run: what the prefix cache has of an earlier one proves nothing.
        self._cache_key = os.urandom(16)
        size = model.grid.smallest()
        pictures = drawn(size.height, size.width).items()
        self._left = [(name, pixels) for name, pixels in pictures for _ in range(_TIMES)]
        self._seen: defaultdict[str, list[_Seen]] = defaultdict(list)
        self._shown = ""  # the name of the picture that runs
        self._running: Generation | None = None
        self.result: PictureResult | None = None

    def join(self, batch: Batch) -> None:
        if self._timeout_s is not None and time.monotonic() > self._begun_at + self._timeout_s:
            if self._running is not None:
                batch.remove(self._running)
            self._end(f"The test did not end within {self._timeout_s:g} s. Try it again.")
        elif self._running is None and batch.has_free_slot:
            self._show_next(batch)

    def owns(self, generation: Generation) -> bool:
        return generation is self._running

    def take(self, token_id: int) -> None:
        generation = self._running
        assert generation is not None
        assert generation.handle is not None
        num_counted, num_tokens = generation.handle.num_prompt_tokens, len(generation.prompt_ids)
        if num_counted != num_tokens:
            self._end(
                f"OpenVINO GenAI counts {num_counted} tokens where Vinery counts {num_tokens}: "
                "the sizes in the folder's preprocessor_config.json do not fit."
            )
            return
        logprob = generation.handle.logprob
        self._seen[self._shown].append((token_id, logprob or 0.0))
        self._running = None
        if not self._left:
            self.result = PictureResult(failure_of(self._seen))

    def fail(self, failed: FailedGeneration) -> None:
        self._end(f"A test picture failed: {failed.reason or failed.message}")

    def _show_next(self, batch: Batch) -> None:
        name, pixels = self._left[0]
        generation = Generation.of(
            None, _submit(self._model, pixels, self._cache_key), self._model, pixels.tobytes()
        )
        generation.is_picture_test = True
        if not batch.may_join(generation):
            return
        del self._left[0]
        self._shown, self._running = name, generation
        failed = batch.add(generation)
        if failed is not None:
            self.fail(failed)

    def _end(self, reason: str) -> None:
        self._running = None
        self.result = PictureResult(reason, is_finished=False)


class PictureTests:
    """The tests of an engine, one at a time, and the connections that wait for a result."""

    def __init__(self, model: VisionModel | None, batch: Batch) -> None:
        self._model = model
        self._batch = batch
        self._test: PictureTest | None = None
        self._waiting: list[tuple[Connection, int]] = []
        self.newest: PictureResult | None = None  # None: of a text model

    @property
    def is_running(self) -> bool:
        return self._test is not None

    def begin(self, timeout_s: float | None = _TIMEOUT_S) -> None:
        if self._test is None and self._model is not None:
            self._test = PictureTest(self._model, timeout_s)

    def ask(self, connection: Connection, nonce: int) -> None:
        if self._model is None:
            connection.send(PicturesTested(nonce, _NO_VISION))
            return
        self._waiting.append((connection, nonce))
        self.begin()

    def forget(self, connection: Connection) -> None:
        self._waiting = [each for each in self._waiting if each[0] is not connection]

    def join(self) -> None:
        if self._test is not None:
            self._test.join(self._batch)
            self._settle(self._test)

    def take(self, generation: Generation, token_ids: Sequence[int]) -> None:
        if self._test is not None and self._test.owns(generation):
            self._test.take(token_ids[0])
            self._settle(self._test)

    def take_failure(self, failed: FailedGeneration) -> bool:
        """Return whether the failed generation belongs to the test, which it then ends."""
        if self._test is None or not self._test.owns(failed.generation):
            return False
        self._test.fail(failed)
        self._settle(self._test)
        return True

    def _settle(self, test: PictureTest) -> None:
        result = test.result
        if result is None:
            return
        self._test = None
        log = logger.warning if result.failure else logger.info
        log("picture test", extra={"fields": asdict(result)})
        if result.is_finished or self.newest is None:
            self.newest = result
        for connection, nonce in self._waiting:
            connection.send(PicturesTested(nonce, result.failure))
        self._waiting.clear()


def failure_of(seen: Mapping[str, Sequence[_Seen]]) -> str:
    """Return the failure for what was seen each time that a picture was shown, by its name."""
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
