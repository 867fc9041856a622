"""The sizes and tokens of pictures, for the shipped models of each family.

`tests/engine/test_vision_families.py` proves that OpenVINO GenAI counts the same tokens.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.core.media import Detail
from vinery_serving.core.picture_sizes import SIZED_TYPES, PictureSizes, picture_sizes

MANY = 10**9
LLAVA = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
# Values of google/gemma-3-4b-it, llava-1.5-7b-hf, llava-v1.6-mistral-7b-hf and InternVL2-1B.
FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gemma3": ({"mm_tokens_per_image": 256}, {"size": {"height": 896, "width": 896}}),
    "llava": ({"vision_config": {"patch_size": 14}}, LLAVA),
    "llava_next": (
        {"vision_config": {"patch_size": 14}, "image_newline": [0.5, 0.25]},
        LLAVA | {"image_grid_pinpoints": PINPOINTS},
    ),
    "internvl_chat": (
        {
            "force_image_size": 448,
            "downsample_ratio": 0.5,
            "max_dynamic_patch": 12,
            "vision_config": {"patch_size": 14, "image_size": 448},
        },
        {"size": {"shortest_edge": 448}, "crop_size": {"height": 448, "width": 448}},
    ),
}

# The model takes no smaller picture.
LEAST_PIXELS = {
    "gemma3": 896 * 896,
    "llava": 336 * 336,
    "llava_next": 336 * 672,
    "internvl_chat": 448 * 448,
}


def sizes_of(model_type: str, **changes: Any) -> PictureSizes:
    config, processor = FILES[model_type]
    sizes = picture_sizes(model_type, config | changes, processor | changes)
    assert sizes is not None
    return sizes


def fitted(
    model_type: str, width: int, height: int, detail: Detail = Detail.AUTO
) -> tuple[tuple[int, int], int]:
    """The size and the tokens of a picture."""
    sizes = sizes_of(model_type)
    size = sizes.fit(width, height, detail, MANY)
    return size, sizes.num_tokens(*size)


@table("model_type", SIZED_TYPES)
@given(
    width=st.integers(1, 10_000),
    height=st.integers(1, 10_000),
    detail=st.sampled_from(Detail),
    max_pixels=st.integers(1, 10**7),
    limit=st.integers(0, 10**7),
)
def test_every_picture_gets_a_size_that_the_model_keeps(
    model_type, width, height, detail, max_pixels, limit
):
    sizes = sizes_of(model_type)
    narrow = sizes.within(limit) if limit else sizes

    size = narrow.fit(width, height, detail, max_pixels)

    assert size[0] * size[1] <= max(max_pixels, LEAST_PIXELS[model_type])
    assert sizes.num_tokens(*size) > 0
    again = narrow.fit(*size, detail, max(max_pixels, size[0] * size[1]))
    assert sizes.num_tokens(*again) == sizes.num_tokens(*size)


@table(
    "model_type, picture, size, num_tokens",
    [
        ("gemma3", (4000, 3000), (896, 896), 256),
        ("gemma3", (10, 3000), (896, 896), 256),
        ("llava", (672, 1344), (336, 672), 576),
        ("llava", (100, 50), (672, 336), 576),
        # A tile of the whole, and rows of 48 that end with one token more.
        ("llava_next", (4000, 4000), (672, 672), 576 + 48 * 49),
        ("llava_next", (1000, 500), (672, 336), 576 + 24 * 49),
        ("llava_next", (600, 400), (672, 449), 576 + 32 * 49),
        ("llava_next", (3000, 1000), (1008, 336), 576 + 24 * 73),
        ("internvl_chat", (500, 500), (448, 448), 256),
        ("internvl_chat", (800, 400), (896, 448), 3 * 256),
        ("internvl_chat", (4000, 3000), (1792, 1344), 13 * 256),
    ],
)
def test_sizes_are_those_of_the_families(model_type, picture, size, num_tokens):
    assert fitted(model_type, *picture) == (size, num_tokens)


def test_low_detail_has_fewer_tokens() -> None:
    for model_type in ("llava_next", "internvl_chat"):
        low, high = (fitted(model_type, 2000, 2000, each)[1] for each in (Detail.LOW, Detail.HIGH))
        assert low < high / 2 + 1


def test_tiles_are_at_most_those_of_the_folder_and_of_genai():
    assert sizes_of("internvl_chat", max_dynamic_patch=6).fit(9, 4, Detail.AUTO, MANY) == (896, 448)
    for most in (12, 40):
        sizes = sizes_of("internvl_chat", max_dynamic_patch=most)
        width, height = sizes.fit(12_000, 1000, Detail.AUTO, MANY)
        assert (width // 448, height // 448) == (12, 1)


def test_a_class_token_counts_where_the_model_shows_it():
    sizes = sizes_of("llava", vision_feature_select_strategy="full")

    assert sizes.num_tokens(336, 336) == 577


@table("model_type", SIZED_TYPES)
@table("size", [(0, 0), (5, 5), (337, 337), (673, 10), (20_000, 448)])
def test_other_sizes_have_no_number_of_tokens(model_type, size):
    with pytest.raises(ValueError, match="size of a picture"):
        sizes_of(model_type).num_tokens(*size)


@table(
    "model_type, changes",
    [
        ("gemma3", {"size": {"height": 896, "width": 448}}),
        ("gemma3", {"size": 896}),
        ("gemma3", {"mm_tokens_per_image": "256"}),
        ("llava", {"crop_size": {"height": 224, "width": 336}}),
        ("llava_next", {"image_grid_pinpoints": None}),
        ("llava_next", {"image_grid_pinpoints": [[336]]}),
        ("llava_next", {"image_grid_pinpoints": [[336, 500]]}),
        ("llava_next", {"vision_feature_select_strategy": "full"}),
        ("llava_next", {"image_newline": None}),
        ("internvl_chat", {"size": 448}),
        ("internvl_chat", {"size": {"shortest_edge": 224}}),
        ("internvl_chat", {"force_image_size": -1}),
    ],
)
def test_a_folder_that_genai_reads_otherwise_is_refused(model_type, changes):
    with pytest.raises(ValueError, match="The model's"):
        sizes_of(model_type, **changes)


def test_other_types_have_no_sizes_here():
    assert picture_sizes("phi3_v", {}, {}) is None
