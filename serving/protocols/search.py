"""The fields that ask for the best of several answers, for every endpoint.

`best_of` is two things: to OpenAI the number of answers that are drawn, of which the
likeliest are returned; to OpenVINO Model Server the width of a search by beams. Each URL
tree means its own. `use_beam_search` is vLLM's, and means beams on both.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.core.errors import InvalidRequest
from serving.core.request import BeamSearch, Dialect
from serving.protocols.fields import NumSamples
from serving.protocols.reading import Wire

# More candidates than a step has room for could never run.
_MAX_WIDTH = 64


class SearchFields(Wire):
    """What `BeamSearch` and the number of candidates are read from."""

    best_of: NumSamples | None = None
    use_beam_search: bool | None = None
    length_penalty: Annotated[float, Field(ge=-100, le=100)] | None = None
    early_stopping: bool | Literal["never"] | None = None
    no_repeat_ngram_size: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None

    def beams(self, n: int, dialect: Dialect) -> BeamSearch | None:
        """The search, if one was asked for. Raises `InvalidRequest`."""
        width = self._width(n, dialect)
        if width is None:
            self._refuse_without_search()
            return None
        _require_at_least("best_of", width, n)
        if width > _MAX_WIDTH:
            param = "n" if self.best_of is None else "best_of"
            raise InvalidRequest(
                f"`{param}` must be at most {_MAX_WIDTH} for a search by beams.", param=param
            )
        return BeamSearch(
            width=width,
            length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
            stops_early=None if self.early_stopping == "never" else bool(self.early_stopping),
            no_repeat_ngram_size=self.no_repeat_ngram_size or 0,
        )

    def num_candidates(self, n: int, dialect: Dialect, *, is_streamed: bool) -> int | None:
        """How many answers are drawn for each prompt when that is more than are returned.
        Raises `InvalidRequest`."""
        if self.best_of is None or self._width(n, dialect) is not None:
            return None
        _require_at_least("best_of", self.best_of, n)
        if self.best_of == n:
            return None
        if is_streamed:
            raise InvalidRequest(
                "`best_of` above `n` cannot be streamed: which answers are the best is known at "
                "the end. Set `stream` to false.",
                param="best_of",
            )
        return self.best_of

    def _width(self, n: int, dialect: Dialect) -> int | None:
        if self.use_beam_search:
            return self.best_of or n
        if self.best_of is not None and self.best_of > 1 and dialect.best_of_is_beams:
            return self.best_of
        return None

    def _refuse_without_search(self) -> None:
        for name, harmless in (
            ("length_penalty", 1.0),
            ("early_stopping", False),
            ("no_repeat_ngram_size", None),
        ):
            value = getattr(self, name)
            if value is not None and value != harmless:
                raise InvalidRequest(
                    f"`{name}` belongs to a search by beams. Set `use_beam_search` to true, or "
                    "leave it out.",
                    param=name,
                )


def _require_at_least(name: str, value: int, n: int) -> None:
    if value < n:
        raise InvalidRequest(f"`{name}` must be at least `n`, which is {n}.", param=name)
