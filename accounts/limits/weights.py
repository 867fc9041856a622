"""What tokens of each model count for in budgets, as administrators have set it."""

from __future__ import annotations

import logging

from accounts.limits.rules import Weights
from accounts.models import ModelWeight
from accounts.models.limits import MAX_WEIGHT

log = logging.getLogger(__name__)


def read_weights() -> dict[str, Weights]:
    """By model. One without a row counts each token once. Lets database errors through."""
    weights = {}
    for row in ModelWeight.objects.all():
        try:
            weights[row.model] = Weights(
                uncached_milli=_milli(row.uncached),
                cached_milli=_milli(row.cached),
                output_milli=_milli(row.output),
                image_milli=_milli(row.image),
            )
        except (ValueError, OverflowError) as error:  # infinite, or no number
            log.error("the weights of %s are left out: %s", ascii(row.model), error)
    return weights


def _milli(weight: float) -> int:
    """Within what a form would have let through."""
    return min(max(0, round(weight * 1000)), MAX_WEIGHT * 1000)
