"""Token counts, and token weights: how many weighted tokens one token of a model is. Budgets count
weighted tokens. No Django.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from vinery_accounts.base.limit_table import MAX_WEIGHT

logger = logging.getLogger(__name__)


class TokenCounts(msgspec.Struct, frozen=True):
    """The tokens of a request, or of several. Cached, image, video and audio tokens are part of the
    prompt tokens, reasoning tokens of the output tokens.

    What has counts extends this class: entries of the journal, whose fields have the names of
    columns, reservations of limits, and figures of reports.
    """

    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_reasoning_tokens: int = 0
    num_image_tokens: int = 0
    num_video_tokens: int = 0
    num_audio_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True, slots=True)
class Weights:
    """The weighted tokens of one token of each sort, in thousandths."""

    uncached_milli: int = 1000
    cached_milli: int = 1000
    output_milli: int = 1000
    image_milli: int = 1000

    def weigh_milli(self, counts: TokenCounts) -> int:
        """Return the weighted tokens of a request, in thousandths. No token may be both cached and
        an image token; the tokens of videos count as those of images."""
        num_cached, num_image = counts.num_cached_tokens, counts.num_image_tokens
        return (
            (counts.num_prompt_tokens - num_cached - num_image) * self.uncached_milli
            + num_cached * self.cached_milli
            + num_image * self.image_milli
            + counts.num_output_tokens * self.output_milli
        )


EQUAL_WEIGHTS: Final = Weights()


def weights_by_model(rows: Iterable[Any]) -> dict[str, Weights]:
    """Return the weights of rows of `ModelWeight` by the model's name. A model without a row has
    `EQUAL_WEIGHTS`."""
    weights = {}
    for row in rows:
        try:
            columns = (row.uncached, row.cached, row.output, row.image)
            weights[row.model] = Weights(*map(_milli, columns))
        except (ValueError, OverflowError) as error:  # the weight is infinite or no number
            logger.error("ignoring the token weights of %s: %s", ascii(row.model), error)
    return weights


def _milli(weight: float) -> int:
    return min(max(0, round(weight * 1000)), MAX_WEIGHT * 1000)
