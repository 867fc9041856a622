"""Shows a vision model known pictures, to learn whether the device lets it see: some drivers
compute vision models wrongly. The same picture must give the same token with the same probability,
and another picture another one. The pictures run in the batch, one at a time."""

import logging
import os
import time
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
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

# Of log-probabilities. The second showing of a picture finds its prompt in the prefix cache,
# and a device that computes in bf16 then rounds otherwise. Two first showings differ by less.
_STABLE: Final = 0.05
_ALIKE: Final = 1e-3
_FIRST_TOKENS: Final = 4  # before the picture: any tokens will do
_FIRST_ID: Final = 3  # of these tokens, in a model without an id for the end of a picture
_TIMEOUT_S: Final = 60.0  # of a test beside requests
_TIMES: Final = 2  # that each picture is shown

_Pixels = npt.NDArray[np.uint8]  # (height, width, 3)
_Seen = tuple[int, float]  # the likeliest token behind a picture, and its log-probability


@dataclass(frozen=True, slots=True)
class PictureResult:
    failure: str  # a sentence for administrators; empty: the model distinguishes all pictures
    is_finished: bool = True


_Test = Generator[None, None, PictureResult]

_NO_VISION: Final = "The model takes text only, so there is no picture to show."


class PictureTests:
    """Runs one test for all that ask meanwhile. `join` is called before each step."""

    def __init__(self, model: VisionModel | None, batch: Batch) -> None:
        self._model = model
        self._batch = batch
        self._test: _Test | None = None
        self._failed: FailedGeneration | None = None  # the picture that runs
        self._waiting: list[tuple[Connection, int]] = []
        self.newest: PictureResult | None = None  # None: of a text model

    @property
    def is_running(self) -> bool:
        return self._test is not None

    def begin(self, timeout_s: float = _TIMEOUT_S) -> None:
        if self._test is None and self._model is not None:
            self._failed = None
            self._test = self._show(self._model, time.monotonic() + timeout_s)

    def ask(self, connection: Connection, nonce: int) -> None:
        """Test the model, and send the result to a connection."""
        if self._model is None:
            connection.send(PicturesTested(nonce, _NO_VISION))
            return
        self._waiting.append((connection, nonce))
        self.begin()

    def join(self) -> None:
        """Add the next picture if none runs and the batch has room, or end the test."""
        if self._test is not None:
            try:
                next(self._test)
            except StopIteration as ended:
                self._settle(ended.value)

    def take_failure(self, failed: FailedGeneration) -> bool:
        """Return whether the failed generation belongs to the test, which it then ends."""
        if failed.generation.is_picture_test:
            self._failed = failed
        return failed.generation.is_picture_test

    def _show(self, model: VisionModel, ends_at: float) -> _Test:
        """Goes on with each step. `ends_at` is of the monotonic clock."""
        size = model.grid.smallest()
        # Of one test: what the prefix cache has of an earlier one proves nothing.
        cache_key = os.urandom(16)
        seen: defaultdict[str, list[_Seen]] = defaultdict(list)
        for name, pixels in drawn(size.height, size.width).items():
            for _ in range(_TIMES):
                submit = _submit(model, pixels, cache_key)
                generation = Generation.of(None, submit, model, pixels.tobytes())
                generation.is_picture_test = True
                failure = yield from self._run(generation, ends_at)
                if failure:
                    return PictureResult(failure, is_finished=False)
                assert generation.handle is not None
                logprob = generation.handle.logprob or 0.0
                seen[name].append((generation.tokens[0], logprob))
        return PictureResult(failure_of(seen))

    def _run(self, generation: Generation, ends_at: float) -> Generator[None, None, str]:
        """Let the batch have a picture. Returns why there is no token behind it, or ""."""
        while not generation.tokens:
            if time.monotonic() > ends_at:
                self._batch.remove(generation)
                return f"The test did not end within {_TIMEOUT_S:g} s. Try it again."
            is_next = not generation.was_added and self._batch.has_free_slot
            if is_next and self._batch.may_join(generation):
                self._failed = self._batch.add(generation)
            if self._failed is not None:
                return f"A test picture failed: {self._failed.reason or self._failed.message}"
            yield
        assert generation.handle is not None
        num_counted, num_tokens = generation.handle.num_prompt_tokens, len(generation.prompt_ids)
        if num_counted == num_tokens:
            return ""
        return (
            f"OpenVINO GenAI counts {num_counted} tokens where Vinery counts {num_tokens}: "
            "the sizes in the folder's preprocessor_config.json do not fit."
        )

    def _settle(self, result: PictureResult) -> None:
        self._test = None
        log = logger.warning if result.failure else logger.info
        log("picture test", extra={"fields": asdict(result)})
        if result.is_finished or self.newest is None:
            self.newest = result
        for connection, nonce in self._waiting:
            connection.send(PicturesTested(nonce, result.failure))
        self._waiting.clear()


def failure_of(seen: Mapping[str, Sequence[_Seen]]) -> str:
    unstable = [
        name
        for name, (first, *rest) in seen.items()
        if not all(_are_equal(first, each, _STABLE) for each in rest)
    ]
    if unstable:
        return f"The same picture looks different twice: {', '.join(unstable)}."
    pairs = list(combinations(seen, 2))
    alike = [pair for pair in pairs if _are_equal(seen[pair[0]][0], seen[pair[1]][0], _ALIKE)]
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


def _are_equal(one: _Seen, other: _Seen, most: float) -> bool:
    return one[0] == other[0] and abs(one[1] - other[1]) < most
