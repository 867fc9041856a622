"""What one generation has to see of its logits, and do to them, in every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from serving.engine.logits_hook import View
from serving.engine.logprobs import RowLogprobs
from serving.engine.rows import Known, Stretch
from serving.engine.shaper import Processor, Shaper, penalize
from serving.transport.messages import LogitsSpec, LogprobsSpec, Submit, TokenLogprobs


class PromptWasCached(Exception):
    """Part of a prompt that was to be scored was not computed."""


class Watch:
    """Of a generation whose `Submit.logits` is set, or whose repetition penalty is left to
    the caller of the pipeline."""

    def __init__(
        self,
        submit: Submit,
        prompt_ids: npt.NDArray[np.int64],
        processors: Sequence[Processor],
    ) -> None:
        spec = self._spec = submit.logits or LogitsSpec()
        self._prompt_ids = prompt_ids
        self._penalty = submit.sampling.repetition_penalty
        self._shaper = Shaper(spec, processors=processors)
        # Whether the penalty is applied here: see `Pipeline.leaves_penalty`.
        self.owns_penalty = False
        # Of the last step, one for each token that may come of it.
        self._rows: list[RowLogprobs] = []
        self.prompt_logprobs: list[TokenLogprobs] = []

    @property
    def must_score(self) -> bool:
        """Whether the prompt's tokens still have to be computed, all of them."""
        wanted = self._spec.prompt_logprobs is not None
        return wanted and len(self.prompt_logprobs) < len(self._prompt_ids) - 1

    def start_over(self) -> None:
        """The generation is added to the pipeline again."""
        self._rows = []
        if self.must_score:
            self.prompt_logprobs = []

    def see(self, view: View, stretch: Stretch, known: Known, tokens: Sequence[int]) -> None:
        """In the middle of a step. `tokens` are those made so far. Raises
        `PromptWasCached`, or whatever a processor raises."""
        self._rows = []
        if known.is_answering:
            self._answer(view, stretch, tokens)
            return
        if self.must_score and self._spec.prompt_logprobs is not None:
            self._score(view, stretch, self._spec.prompt_logprobs)
        if stretch.start + stretch.num_tokens == known.num_known:
            self._see_row(view, stretch.rows[-1], tokens)

    def _answer(self, view: View, stretch: Stretch, tokens: Sequence[int]) -> None:
        """A row for the next token, and one for each that was proposed ahead: what would
        follow if all before it were taken."""
        ahead = view.token_ids[stretch.at + 1 : stretch.at + stretch.num_tokens].tolist()
        for number, row in enumerate(stretch.rows):
            self._see_row(view, row, [*tokens, *ahead[:number]] if number else tokens)

    def _see_row(self, view: View, number: int, tokens: Sequence[int]) -> None:
        row = view.logits[number]
        if self._spec.logprobs is not None:
            self._rows.append(RowLogprobs(row, self._spec.logprobs))
        if self.owns_penalty:
            penalize(row, self._prompt_ids, tokens, self._penalty)
        self._shaper.shape(row, tokens)

    def logprobs(self, token_ids: Sequence[int]) -> list[TokenLogprobs]:
        """Of the tokens that the last step made; empty when nobody asked."""
        return [row.of(id_) for row, id_ in zip(self._rows, token_ids, strict=False)]

    def _score(self, view: View, stretch: Stretch, spec: LogprobsSpec) -> None:
        if stretch.start != len(self.prompt_logprobs):
            raise PromptWasCached
        following = self._prompt_ids[stretch.start + 1 : stretch.start + stretch.num_tokens + 1]
        for at, token_id in zip(stretch.rows, following, strict=False):
            self.prompt_logprobs.append(RowLogprobs(view.logits[at], spec).of(int(token_id)))
