"""Token weights: how many weighted tokens, which budgets count, one token of a model is."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from vinery_accounts.base.limit_table import MAX_WEIGHT
from vinery_accounts.models.limits import ModelWeight

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weighted tokens of one token of each sort, in thousandths."""

    uncached_milli: int = 1000
    cached_milli: int = 1000
    output_milli: int = 1000
    image_milli: int = 1000

    def weigh_milli(
        self, num_input: int, num_output: int, num_cached: int = 0, num_image: int = 0
    ) -> int:
        """Return the weighted tokens of a request, in thousandths. Cached and image tokens are
        part of the input, and no token is both."""
        return (
            (num_input - num_cached - num_image) * self.uncached_milli
            + num_cached * self.cached_milli
            + num_image * self.image_milli
            + num_output * self.output_milli
        )


EQUAL_WEIGHTS: Final = Weights()


def weights_by_model(rows: Iterable[ModelWeight]) -> dict[str, Weights]:
    """Return the weights by the model's name. A model without a row has `EQUAL_WEIGHTS`."""
    weights = {}
    for row in rows:
        try:
            columns = (row.uncached, row.cached, row.output, row.image)
            weights[row.model] = Weights(*map(_milli, columns))
        except (ValueError, OverflowError) as error:  # the weight is infinite or no number
            logger.error("ignoring the token weights of %s: %s", ascii(row.model), error)
    return weights


def _milli(weight: float) -> int:
    """Return thousandths, within what forms accept."""
    return min(max(0, round(weight * 1000)), MAX_WEIGHT * 1000)
