"""Of a pair the document is cut, and the query is whole."""

import pytest

from tests.tables import table
from vinery_serving.core.pooling import TextPair
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.pooling_texts import PairTooLong, PoolingTexts

from .builders import MODEL

PAIR = TextPair("Where does the kitten sleep?", "the cat is on the mat and the dog is at the gate")


@table(
    "limit, most, keeps_start, num_shown",
    [
        (None, None, True, None),
        (None, 99, True, None),
        (None, 3, True, 3),
        (None, 3, False, 3),
        (-2, None, True, -2),
        (-2, 3, True, 3),
        (2, 3, True, 2),
    ],
)
def test_a_document_has_at_most_so_many_tokens(limit, most, keeps_start, num_shown):
    """A limit counts tokens beside the query; negative: so many fewer than all tokens."""
    texts = PoolingTexts(ModelAssets.load(MODEL.parent / "tiny-rerank"), 512)
    whole = list(texts.pair(PAIR, None, keeps_start=True).token_ids)
    alone = list(texts.pair(TextPair(PAIR.query, ""), None, keeps_start=True).token_ids)
    num_all = len(whole) - len(alone)
    num_shown = num_all if num_shown is None else num_shown % num_all
    if limit is not None:
        limit = len(alone) + limit % num_all

    found = list(texts.pair(PAIR, limit, most, keeps_start=keeps_start).token_ids)

    start = len(alone) - 1  # the last token follows the document
    assert found == [*whole[: start + num_shown], whole[-1]]
    with pytest.raises(PairTooLong):
        texts.pair(PAIR, len(alone), most, keeps_start=keeps_start)
