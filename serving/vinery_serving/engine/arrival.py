"""A request at arrival: its pixels are collected. A request that would break or overflow the
pipeline, or that the pipeline does not support, is refused.
"""

from typing import Final

from vinery_serving.core.errors import Overloaded
from vinery_serving.core.media import MAX_MEDIA_BYTES
from vinery_serving.engine.logits_handler import check_ids
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.prefix_cache import TokenArray
from vinery_serving.transport.messages import MediaPixels, Submit
from vinery_serving.transport.server import Connection

_MAX_ARRIVING_BYTES: Final = 1 << 30  # of all requests that are still arriving
TOO_MANY_PIXELS: Final = (
    "The engine has too many pictures to read; try again shortly, or send smaller ones."
)
_CACHED_UNSCORED: Final = "This model's prompts cannot be scored while enable_prefix_caching is on."


class ArrivingPixels:
    """The pixels of requests whose `Submit` has not come yet, by connection and request. Pixels
    come in parts, between messages of other requests, see `transport.client`. A request with too
    many pixels loses them."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], bytearray | None] = {}  # None: too many
        self._num_bytes = 0

    def add(self, connection: Connection, message: MediaPixels) -> None:
        key = (id(connection), message.id)
        held = self._parts.setdefault(key, bytearray())
        if held is None:
            return
        num_new = len(message.pixels)
        if len(held) + num_new > MAX_MEDIA_BYTES or self._num_bytes + num_new > _MAX_ARRIVING_BYTES:
            self._num_bytes -= len(held)
            self._parts[key] = None
            return
        held += message.pixels
        self._num_bytes += num_new

    def take(self, connection: Connection, submit: Submit) -> bytes:
        """Return the bytes of all media of a request. Raises Overloaded, or ValueError if there
        are not as many bytes as the media have."""
        key = (id(connection), submit.id)
        has_come = key in self._parts
        held = self._parts.get(key)
        self.drop(connection, submit.id)
        if has_come and held is None:
            raise Overloaded(TOO_MANY_PIXELS)
        pixels = bytes(held or b"")
        if len(pixels) != sum(each.num_bytes for each in submit.media):
            raise ValueError("The pictures of the request do not have the number of bytes.")
        return pixels

    def drop(self, connection: Connection, id_: int) -> None:
        held = self._parts.pop((id(connection), id_), None)
        self._num_bytes -= len(held or b"")

    def drop_all(self, connection: Connection) -> None:
        for key in [key for key in self._parts if key[0] == id(connection)]:
            self.drop(connection, key[1])


def check_submit(submit: Submit, ids: TokenArray, pipeline: Pipeline, max_context: int) -> None:
    """Raises ValueError with the reason. `ids`: the prompt. `max_context`: 0 if it is unknown."""
    vocab_size = pipeline.vocab_size
    if len(ids) == 0:
        raise ValueError("The prompt is empty.")
    if int(ids.min()) < 0 or (vocab_size and int(ids.max()) >= vocab_size):
        raise ValueError(f"The prompt has token ids outside 0..{vocab_size - 1}.")
    # GenAI writes to the logits of stop tokens without checking the ids.
    if vocab_size and any(not 0 <= id_ < vocab_size for id_ in submit.stop_token_ids):
        raise ValueError(f"There are stop token ids outside 0..{vocab_size - 1}.")
    if max_context and len(ids) + min(1, submit.max_new_tokens) > max_context:
        raise ValueError(f"The prompt has {len(ids)} tokens; the model's context is {max_context}.")
    if pipeline.vision is not None:
        pipeline.vision.check(ids, submit.media)
        _check_undivided(pipeline.vision.num_undivided(submit.media), pipeline.max_step_tokens)
    elif submit.media:
        raise ValueError("This model takes text only.")
    if submit.cache_key is not None:
        _check_salt(submit, pipeline)
    spec = submit.logits
    if spec is not None:
        if not pipeline.has_logits_hook:
            raise ValueError("The logits of this model cannot be read or changed.")
        if spec.prompt_logprobs is not None and not pipeline.can_score_prompts:
            raise ValueError(_CACHED_UNSCORED)
        check_ids(spec, pipeline.vocab_size)


def _check_undivided(num_tokens: int, max_step_tokens: int) -> None:
    """Half of a step is left for the streams beside a prompt."""
    most = max_step_tokens // 2
    if num_tokens > most:
        raise ValueError(
            f"This model's pictures must be within the first {most} tokens of a prompt, and the "
            f"last one ends at {num_tokens}. Send fewer pictures or less text before them, or ask "
            "the administrator for a larger max_num_batched_tokens."
        )


def _check_salt(submit: Submit, pipeline: Pipeline) -> None:
    if not pipeline.supports_cache_salt:
        raise ValueError("This model does not support cache_salt.")
    # The tokens before the first picture carry the salt.
    if submit.media and submit.media[0].start < 2:
        raise ValueError("The prompt must have a text before its first picture.")
    # GenAI would write to the logits of salted ids, which have none.
    if submit.beams is not None and submit.beams.no_repeat_ngram_size:
        raise ValueError("no_repeat_ngram_size does not work with a cache_salt.")
