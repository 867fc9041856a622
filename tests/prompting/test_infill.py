"""Filling in the middle, with tokenizers that have the markers of a family."""

from pathlib import Path

import pytest

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import Encoding
from vinery_serving.prompting.assets import ModelAssets

from .builders import a_coder, a_copy_of_the_model, name_markers, with_tokens_around

# The markers of a family, and their order around `pre` and `suf`.
PREFIX_FIRST, SUFFIX_FIRST = "{0}pre{1}suf{2}", "{1}suf{0}pre{2}"
FAMILIES = [
    (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), PREFIX_FIRST),
    (("<PRE>", "<SUF>", "<MID>"), PREFIX_FIRST),
    (("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"), SUFFIX_FIRST),
    (("[SUFFIX]", "[PREFIX]"), "{0}suf{1}pre"),
]


@pytest.mark.parametrize(("markers", "order"), FAMILIES)
def test_each_family_has_its_order(tmp_path, markers, order):
    assets = a_coder(tmp_path / "m", markers)

    prompt = assets.encode_prompt("pre", suffix="suf")

    assert assets.tokenizer.decode(prompt.token_ids) == order.format(*markers)
    assert prompt.text == "pre"


@pytest.fixture
def coder(tmp_path: Path) -> ModelAssets:
    return a_coder(tmp_path / "m", FAMILIES[0][0])


def test_texts_are_encoded_separately_from_the_markers_and_may_be_token_ids(coder):
    prompt = coder.encode_prompt("def f():", suffix="return x")

    name = coder.tokenizer.token_id
    prefix = coder.tokenizer.encode("def f():")
    expected = [name("<|fim_prefix|>"), *prefix]
    expected += [name("<|fim_suffix|>"), *coder.tokenizer.encode("return x")]
    assert list(prompt.token_ids) == [*expected, name("<|fim_middle|>")]
    # The output ends where the next file would begin.
    assert prompt.end_ids == (0,)  # <|endoftext|>
    by_ids = coder.encode_prompt(prefix, suffix="return x")
    assert (by_ids.token_ids, by_ids.text) == (prompt.token_ids, None)


def test_only_the_prefix_is_cut_at_its_start_and_a_suffix_that_leaves_no_tokens_refused(coder):
    prefix, suffix = "one two three four", " end"
    num_frame = len(coder.encode_prompt("", suffix=suffix).token_ids)

    prompt = coder.encode_prompt(prefix, Encoding(max_tokens=num_frame + 2), suffix=suffix)

    assert list(prompt.token_ids[1:3]) == coder.tokenizer.encode(prefix)[-2:]
    assert len(prompt.token_ids) == num_frame + 2
    with pytest.raises(InvalidRequest, match="leaves no tokens") as caught:
        coder.encode_prompt("one two", Encoding(max_tokens=4), suffix="a long suffix it is")
    assert caught.value.param == "truncate_prompt_tokens"


def test_a_begin_of_text_goes_before_the_markers_and_without_them_a_suffix_is_refused(tmp_path):
    path = with_tokens_around(a_copy_of_the_model(tmp_path / "m"))
    with pytest.raises(UnsupportedParameter, match="no tokens for filling in") as caught:
        ModelAssets.load(path).encode_prompt("a", suffix="b")
    assert caught.value.param == "suffix"

    name_markers(path, FAMILIES[0][0])
    assets = ModelAssets.load(path)
    assert assets.encode_prompt("a", suffix="b").token_ids[:2] == (1, 3)
    bare = assets.encode_prompt("a", Encoding(adds_special_tokens=False), suffix="b")
    assert bare.token_ids[0] == 3
