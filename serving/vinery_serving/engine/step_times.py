"""What a step takes, and what each token of a prompt adds to it, by the latest steps.

So a slice of a long prompt takes about as long as the rest of its step: on a processor that is a
block of the cache, and a device on which a step with a prompt is not longer gets whole steps.
"""

from typing import Final

# How much the newest step counts in the means.
_NEWEST_PART: Final = 0.02
# Of the number of tokens; below, a line through the steps is chance.
_LEAST_VARIANCE: Final = 16.0


class StepTimes:
    """A line through steps, by least squares: their seconds over the prompt tokens in each."""

    def __init__(self) -> None:
        # Of tokens, seconds, tokens squared, and the product of tokens and seconds.
        self._means: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)

    def note(self, num_prompt_tokens: int, step_s: float) -> None:
        new = (num_prompt_tokens, step_s, num_prompt_tokens**2, num_prompt_tokens * step_s)
        pairs = zip(self._means, new, strict=True)
        self._means = tuple(mean + _NEWEST_PART * (each - mean) for mean, each in pairs)

    def num_affordable(self, least: int, most: int) -> int:
        """Return how many tokens of prompts take as long as the rest of a step."""
        tokens, seconds, squares, products = self._means
        variance, covariance = squares - tokens**2, products - tokens * seconds
        if variance < _LEAST_VARIANCE:
            return least
        rest = seconds * variance - covariance * tokens
        return int(min(most, max(least, rest / covariance))) if covariance > 0 else most
