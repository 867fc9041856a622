"""Pooling in the files of sentence-transformers. Of a pair the document is cut, never the query."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.tables import table
from vinery_serving.core.pooling import TextPair
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.prompting.pooling_folder import PoolingFolder
from vinery_serving.prompting.pooling_texts import PairTooLong, PoolingTexts

from .builders import MODEL


def folder(path: Path, **files: Any) -> PoolingFolder:
    """Files by their names, with `__` for a folder and without `.json`."""
    for name, value in files.items():
        file = path / f"{name.replace('__', '/')}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(value))
    return PoolingFolder.read(ModelFolder(path, model_type=files.get("config", {}).get("type")))


def test_the_shipped_model_takes_the_mean_and_one_that_generated_text_gives_its_last_token(
    tmp_path,
):
    found = PoolingFolder.read(ModelFolder.read(REPOSITORY / "models" / "tiny-embed"))
    assert (found.pooling, found.normalizes, found.max_tokens) == ("mean", True, 512)

    assert folder(tmp_path).pooling == "cls"
    config = {"architectures": ["Qwen3ForCausalLM"], "pad_token_id": 3}
    found = folder(tmp_path, config=config)
    assert (found.pooling, found.pad_id) == ("last_token", 3)


@table(
    "values, pooling",
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last_token"),
        ({"pooling_mode": "lasttoken"}, "last_token"),
        # Vinery does not have these.
        ({"pooling_mode_max_tokens": True}, None),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode": "weightedmean"}, None),
    ],
)
def test_the_pooling_is_that_of_the_file_or_refused(tmp_path, values, pooling):
    if pooling:
        assert folder(tmp_path, **{"1_Pooling__config": values}).pooling == pooling
        return
    with pytest.raises(UnusableFolder, match="Vinery has one of cls, mean and lasttoken"):
        folder(tmp_path, **{"1_Pooling__config": values})


def test_vectors_are_scaled_as_the_modules_have_it(tmp_path):
    def modules(*kinds: str) -> list[dict[str, str]]:
        return [{"path": "", "type": f"sentence_transformers.models.{kind}"} for kind in kinds]

    assert folder(tmp_path).normalizes
    assert not folder(tmp_path, modules=modules("Transformer", "Pooling")).normalizes
    assert folder(tmp_path, modules=modules("Transformer", "Normalize")).normalizes


def test_the_smallest_limit_of_tokens_counts(tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 514}')
    xlm = PoolingFolder.read(ModelFolder(tmp_path, "xlm-roberta", max_context=514))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    shorter = PoolingFolder.read(ModelFolder(tmp_path, "xlm-roberta", max_context=514))

    assert (xlm.max_tokens, shorter.max_tokens) == (512, 256)


def test_prompts_have_names_and_one_may_be_the_default(tmp_path):
    prompts = {"query": "query: ", "document": "passage: "}
    config = {"prompts": prompts, "default_prompt_name": "document"}
    found = folder(tmp_path, config_sentence_transformers=config)

    assert (found.prompts, found.default_prompt) == (prompts, "passage: ")


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
