"""How prompts of Gemma 3, LLaVA, LLaVA-NeXT and InternVL show pictures.

The folders come from the engine's tests. The tokenizer has tokens for each byte, and for two or
three line breaks, like Gemma's.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.engine.family_models import FAMILIES, a_family_folder
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import Clip, Detail, MediaKind, MediaPart, Picture
from vinery_serving.engine.vision import VisionModel
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.transport.messages import MediaInput

from .builders import a_chat, a_question

MANY = 10**9
# A picture as the processor of each family writes it into the text, without the repeated token.
SHOWN = {
    "gemma3": ("<start_of_image>", "<image_soft_token>", "<end_of_image>"),
    "llava": ("", "<image>", ""),
    "llava_next": ("", "<image>", ""),
    "internvl_chat": ("<img>", "<IMG_CONTEXT>", "</img>"),
}


@pytest.fixture(scope="module", params=list(FAMILIES))
def name(request: pytest.FixtureRequest) -> str:
    family: str = request.param
    return family


@pytest.fixture(scope="module")
def assets(name: str, tmp_path_factory: pytest.TempPathFactory) -> ModelAssets:
    return assets_of(name, tmp_path_factory.mktemp(name) / "model")


def assets_of(name: str, path: Path) -> ModelAssets:
    return ModelAssets.load(a_family_folder(name, path))


def a_picture(assets: ModelAssets, width: int = 90, height: int = 60) -> MediaPart:
    assert assets.vision is not None
    width, height = assets.vision.fit(width, height, Detail.AUTO, MANY)
    return MediaPart(MediaKind.IMAGE, Picture(height, width, bytes(width * height * 3)), "p")


def test_each_picture_has_its_tokens(name, assets):
    small, wide = a_picture(assets), a_picture(assets, 300, 40)
    prompt = assets.render(a_chat(a_question(small, "or", wide, "which?")))

    start, pad, end = SHOWN[name]
    assert assets.vision is not None
    for each, part in zip(prompt.media, (small, wide), strict=True):
        assert each.source is part.source
        assert each.num_tokens == assets.vision.num_tokens(each.source.width, each.source.height)
        ids = prompt.token_ids[each.start : each.start + each.num_tokens]
        assert set(ids) == {assets.tokenizer.token_id(pad)}
        if start:
            assert prompt.token_ids[each.start - 1] == assets.tokenizer.token_id(start)
            assert prompt.token_ids[each.span[1]] == assets.tokenizer.token_id(end)
    num_pads = prompt.token_ids.count(assets.tokenizer.token_id(pad))
    assert num_pads == prompt.num_media_tokens


def test_the_engine_takes_what_the_gateway_renders(assets):
    one, wide = a_picture(assets), a_picture(assets, 300, 40)
    prompt = assets.render(a_chat(a_question(one, "or", wide), ("assistant", "A."), ("user", "?")))
    media = tuple(
        MediaInput(each.start, each.grid, each.source.height, each.source.width)
        for each in prompt.media
    )

    model = VisionModel.read(assets.folder.path)
    model.check(np.array(prompt.token_ids, np.int64), media)

    assert len(media) == 2


@table("has_picture", [False, True])
def test_a_clip_and_a_text_with_the_tokens_of_pictures_are_refused_by_name(
    name, assets, has_picture
):
    assert assets.vision is not None
    pictures = [a_picture(assets)] * has_picture
    for token in (*assets.vision.markup.reserved, assets.vision.markup.image):
        with pytest.raises(InvalidRequest) as refused:
            assets.render(a_chat(a_question(f"See {token}", *pictures)))
        assert refused.value.param == "messages"

    clip = MediaPart(MediaKind.VIDEO, Clip(2, 56, 56, bytes(2 * 56 * 56 * 3), 1.0), "v")
    with pytest.raises(InvalidRequest, match="no videos") as refused:
        assets.render(a_chat(a_question(clip, "What moves?")))
    assert refused.value.param == "v"


def test_prompts_of_gemma_are_those_of_its_processor(tmp_path):
    """The processor writes two line breaks before and behind each picture, and the tokenizer joins
    three: that of the turn and these two. The ids come from Hugging Face's Gemma3Processor
    (transformers 5.0.0)."""
    assets = assets_of("gemma3", tmp_path / "model")
    prompt = assets.render(a_chat(a_question(a_picture(assets), "What?")))
    (media,) = prompt.media

    (three,) = assets.tokenizer.encode("\n\n\n")
    assert prompt.token_ids[media.start - 2] == three
    text = prompt.text or ""
    assert "user\n\n\n<start_of_image><image_soft_token><end_of_image>\n\nWhat?" in text
    once = (*prompt.token_ids[: media.start + 1], *prompt.token_ids[media.span[1] :])
    assert list(once) == assets.tokenizer.encode(text)
    user, model = [3, 96, 94, 80, 93], [3, 88, 90, 79, 80, 87]
    picture, words = [269, 5, *[6] * 16, 7, 210, 210], [66, 83, 76, 95, 42]
    assert list(prompt.token_ids) == [*user, *picture, *words, 4, 210, *model]


@pytest.mark.parametrize("family", list(FAMILIES))
def test_an_option_for_pixels_counts_where_there_are_several_sizes(family, tmp_path):
    vision = assets_of(family, tmp_path / "model").vision
    assert vision is not None
    few, many = (each.fit(900, 900, Detail.HIGH, MANY) for each in (vision.within(9_000), vision))

    assert vision.within(0) == vision
    if family in ("llava_next", "internvl_chat"):
        assert few[0] * few[1] <= 9_000 < many[0] * many[1]
    else:
        assert few == many


def test_a_folder_that_genai_reads_otherwise_is_refused(tmp_path):
    folder = a_family_folder("internvl_chat", tmp_path / "model")
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"size": 56}))

    with pytest.raises(UnusableFolder, match="shortest_edge"):
        ModelAssets.load(folder)
