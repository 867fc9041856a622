"""Text or pair of texts -> token ids of an embeddings or rerank model, cut where that is asked for.

A cut keeps the special tokens that the tokenizer puts around a text. Of a pair the document is cut,
never the query.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Tokenizer as RawTokenizer

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.pooling import TextPair
from vinery_serving.core.request import Encoding
from vinery_serving.prompting.assets import ModelAssets


class PairTooLong(ValueError):
    """The query leaves no token for the document. The message is for clients."""


@dataclass(frozen=True, slots=True)
class TokenizedText:
    token_ids: Sequence[int]
    second_start: int = 0  # index of the first token of the second text; 0: there is none

    def as_bytes(self) -> bytes:
        """Return the ids as int32, little endian on all machines that Vinery runs on."""
        return array("i", self.token_ids).tobytes()


class PoolingTexts:
    def __init__(self, assets: ModelAssets, max_tokens: int | None) -> None:
        """The model takes `max_tokens` of one text; None: unknown."""
        self._assets, self.max_tokens = assets, max_tokens

    @cached_property
    def _num_around(self) -> int:
        return len(self._assets.ids_of_text("", Encoding(True, None)))

    def text(self, text: str, limit: int | None, *, keeps_start: bool, param: str) -> TokenizedText:
        """Raises `InvalidRequest`, also for a limit that leaves no token of the text."""
        if limit is not None and limit <= self._num_around:
            raise InvalidRequest(
                f"`truncate_prompt_tokens` must be at least {self._num_around + 1}: this model has "
                f"{self._num_around} tokens around each text.",
                param="truncate_prompt_tokens",
            )
        encoding = Encoding(True, limit, keeps_start=keeps_start)
        try:
            return TokenizedText(self._assets.ids_of_text(text, encoding))
        except InvalidRequest as error:
            error.param = param
            raise

    def ids(
        self, ids: Sequence[int], limit: int | None, *, keeps_start: bool, param: str
    ) -> TokenizedText:
        """The ids as the client sent them. Raises `InvalidRequest`."""
        self._assets.check_ids(ids, param)
        if limit is not None and len(ids) > limit:
            ids = ids[:limit] if keeps_start else ids[-limit:]
        return TokenizedText(ids)

    def pair(
        self, pair: TextPair, limit: int | None, most: int | None = None, *, keeps_start: bool
    ) -> TokenizedText:
        """`most`: of the document, the start of which is kept. Raises `PairTooLong`."""
        self._assets.tokenizer.check_quick()
        raw = self._assets.tokenizer.raw
        assert isinstance(raw, RawTokenizer), "the catalog refuses others"
        whole = raw.encode(pair.query, pair.document)
        if most is None and (limit is None or len(whole.ids) <= limit):
            return TokenizedText(whole.ids, _second_start(whole.type_ids))
        # The positions of the document's tokens.
        own = [at for at, number in enumerate(whole.sequence_ids) if number == 1]
        shown, num_others = own[:most], len(whole.ids) - len(own)
        if limit is not None and num_others + len(shown) > limit:
            num_left = limit - num_others
            if num_left < 1:
                raise PairTooLong(
                    f"`query` has {num_others} tokens with those around it, which leave none of "
                    f"{limit} for the document. Send a shorter query."
                )
            shown = shown[:num_left] if keeps_start else shown[-num_left:]
        dropped = set(own).difference(shown)
        kept = [at for at in range(len(whole.ids)) if at not in dropped]
        types = [whole.type_ids[at] for at in kept]
        return TokenizedText([whole.ids[at] for at in kept], _second_start(types))


def _second_start(type_ids: Sequence[int]) -> int:
    """Where the tokens of type 1 begin; 0 for models that have one type."""
    return next((at for at, kind in enumerate(type_ids) if kind == 1), 0)
