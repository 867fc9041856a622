"""Filling in the middle, with tokenizers that have the markers of a family."""

from pathlib import Path

import pytest

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import Encoding
from vinery_serving.prompting.assets import ModelAssets

from .builders import MODEL, a_coder, a_copy_of_the_model, name_markers, with_tokens_around

BAR = "\uff5c"
# The markers of a family, and their order around `pre` and `suf`.
PREFIX_FIRST, SUFFIX_FIRST = "{0}pre{1}suf{2}", "{1}suf{0}pre{2}"
FAMILIES = [
    (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), PREFIX_FIRST),
    (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), PREFIX_FIRST),
    (("<fim-prefix>", "<fim-suffix>", "<fim-middle>"), PREFIX_FIRST),
    (("▁<PRE>", "▁<SUF>", "▁<MID>"), PREFIX_FIRST),
    (("<PRE>", "<SUF>", "<MID>"), PREFIX_FIRST),
    ((f"<{BAR}fim▁begin{BAR}>", f"<{BAR}fim▁hole{BAR}>", f"<{BAR}fim▁end{BAR}>"), PREFIX_FIRST),
    (("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"), SUFFIX_FIRST),
    (("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"), PREFIX_FIRST),
    (("[SUFFIX]", "[PREFIX]"), "{0}suf{1}pre"),
]


@pytest.mark.parametrize(("markers", "order"), FAMILIES)
def test_each_family_has_its_order(tmp_path: Path, markers: tuple[str, ...], order: str) -> None:
    assets = a_coder(tmp_path / "m", markers)

    prompt = assets.encode_prompt("pre", suffix="suf")

    assert assets.tokenizer.decode(prompt.token_ids) == order.format(*markers)
    assert prompt.text == "pre"


@pytest.fixture
def coder(tmp_path: Path) -> ModelAssets:
    return a_coder(tmp_path / "m", FAMILIES[0][0])


def test_texts_are_encoded_separately_from_the_markers(coder: ModelAssets) -> None:
    prompt = coder.encode_prompt("def f():", suffix="return x")

    name = coder.tokenizer.token_id
    expected = [name("<|fim_prefix|>"), *coder.tokenizer.encode("def f():")]
    expected += [name("<|fim_suffix|>"), *coder.tokenizer.encode("return x")]
    assert list(prompt.token_ids) == [*expected, name("<|fim_middle|>")]


def test_the_prefix_may_be_token_ids(coder: ModelAssets) -> None:
    ids = coder.tokenizer.encode("pre")

    by_ids = coder.encode_prompt(ids, suffix="suf")

    assert by_ids.token_ids == coder.encode_prompt("pre", suffix="suf").token_ids
    assert by_ids.text is None


def test_the_output_ends_where_the_next_file_would_begin(coder: ModelAssets) -> None:
    assert coder.encode_prompt("a", suffix="b").end_ids == (0,)  # <|endoftext|>


def test_only_the_prefix_is_cut_at_its_start(coder: ModelAssets) -> None:
    prefix, suffix = "one two three four", " end"
    num_frame = len(coder.encode_prompt("", suffix=suffix).token_ids)

    prompt = coder.encode_prompt(prefix, Encoding(max_tokens=num_frame + 2), suffix=suffix)

    kept = coder.tokenizer.encode(prefix)[-2:]
    assert list(prompt.token_ids[1:3]) == kept
    assert len(prompt.token_ids) == num_frame + 2


def test_a_suffix_that_leaves_no_tokens_is_refused(coder: ModelAssets) -> None:
    with pytest.raises(InvalidRequest, match="leaves no tokens") as caught:
        coder.encode_prompt("one two", Encoding(max_tokens=4), suffix="a long suffix it is")

    assert caught.value.param == "truncate_prompt_tokens"


def test_a_model_without_markers_refuses_a_suffix() -> None:
    with pytest.raises(UnsupportedParameter, match="no tokens for filling in") as caught:
        ModelAssets.load(MODEL).encode_prompt("a", suffix="b")

    assert caught.value.param == "suffix"


def test_a_begin_of_text_goes_before_the_markers(tmp_path: Path) -> None:
    path = with_tokens_around(a_copy_of_the_model(tmp_path / "m"))
    name_markers(path, FAMILIES[0][0])
    assets = ModelAssets.load(path)

    assert assets.encode_prompt("a", suffix="b").token_ids[:2] == (1, 3)
    bare = assets.encode_prompt("a", Encoding(adds_special_tokens=False), suffix="b")
    assert bare.token_ids[0] == 3
