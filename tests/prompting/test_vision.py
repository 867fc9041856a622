"""Pictures in prompts: size, tokens, and markup in templates."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.family_models import a_family_folder
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import Clip, Detail, MediaKind, MediaPart, Picture
from vinery_serving.core.request import Conversation, Encoding, Message, Rendering, Role, TextPart
from vinery_serving.engine.vision import VisionModel
from vinery_serving.prompting.assets import ModelAssets, Prompt
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.vision import QwenProcessor
from vinery_serving.transport.messages import MediaInput

from .builders import MODEL, a_chat, a_copy_of_the_model, a_question, name_markers
from .templates import VISION_PARTS as PARTS
from .templates import VISION_STRINGS as STRINGS

MANY = 10**9
SIDE = 28
LIMITS = {"min_pixels": 4 * SIDE**2, "max_pixels": 16 * SIDE**2}
# Names for the tokens 3, 4 and 5 of the reference model.
MARKERS = ("<|vision_start|>", "<|image_pad|>", "<|video_pad|>")


def a_vision_folder(
    path: Path, template: str = PARTS, *, model_type: str = "qwen2_vl", **processor: object
) -> Path:
    """The reference model's tokenizer in a folder of a vision model."""
    folder = a_copy_of_the_model(path, without=("openvino_tokenizer*", "openvino_model*"))
    for name in ("language_model", "text_embeddings_model"):
        (folder / f"openvino_{name}.xml").write_text("")
    name_markers(folder, MARKERS)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": model_type}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(LIMITS | processor))
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> ModelAssets:
    return ModelAssets.load(a_vision_folder(tmp_path_factory.mktemp("vision") / "parts"))


def a_picture(width: int = 2 * SIDE, height: int = 2 * SIDE) -> MediaPart:
    return MediaPart(MediaKind.IMAGE, Picture(height, width, bytes(width * height * 3)), "p")


def a_clip(num_frames: int = 4) -> MediaPart:
    side = 2 * SIDE
    clip = Clip(num_frames, side, side, bytes(side * side * 3 * num_frames), 1.0)
    return MediaPart(MediaKind.VIDEO, clip, "v")


def pads(assets: ModelAssets, token_ids: tuple[int, ...]) -> list[int]:
    pad = assets.tokenizer.token_id("<|image_pad|>")
    return [at for at, id_ in enumerate(token_ids) if id_ == pad]


def processor_of(**values: int) -> QwenProcessor:
    return QwenProcessor.of({**LIMITS, **values}, {}, takes_video=True)


# Sizes


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(Detail), st.integers(1, MANY))
def test_every_size_fits_the_model_also_one_with_a_single_size(width, height, detail, max_pixels):
    processor = processor_of(min_pixels=56 * 56, max_pixels=28 * 28 * 1280)
    columns, rows = processor.fit(width, height, detail, max_pixels)
    assert columns % SIDE == rows % SIDE == 0
    assert 56 * 56 <= columns * rows <= max(56 * 56, min(max_pixels, 28 * 28 * 1280))
    assert max(columns, rows) <= 200 * min(columns, rows)
    assert processor.fit(columns, rows, detail, max_pixels) == (columns, rows)

    single = processor_of(min_pixels=4 * SIDE**2, max_pixels=4 * SIDE**2)
    columns, rows = single.fit(width, height, Detail.AUTO, MANY)
    assert columns * rows == 4 * SIDE**2


@table(
    "size, fitted, num_tokens",
    [((224, 224), (112, 112), 16), ((200, 100), (140, 56), 10), ((40, 30), (84, 56), 6)],
)
def test_sizes_are_those_of_the_model_family(size, fitted, num_tokens):
    assert processor_of().fit(*size, Detail.AUTO, MANY) == fitted
    assert processor_of().num_tokens(*fitted) == num_tokens


def test_two_frames_share_their_tokens_and_newer_names_of_the_limits_count_too():
    processor = processor_of()
    assert processor.grid(112, 112) == (1, 4, 4)
    assert processor.grid(112, 112, 3) == (2, 4, 4)
    assert processor.num_tokens(112, 112, 4) == 32

    size = {"shortest_edge": 9 * SIDE**2, "longest_edge": 9 * SIDE**2}
    processor = QwenProcessor.of({"size": size}, {}, takes_video=False)
    assert processor.fit(1000, 1000, Detail.AUTO, MANY) == (3 * SIDE, 3 * SIDE)


def test_low_detail_or_an_option_limits_the_pixels_further():
    processor = processor_of(max_pixels=10**7)
    low = processor.fit(4000, 3000, Detail.LOW, MANY)
    high = processor.fit(4000, 3000, Detail.HIGH, MANY)
    assert low[0] * low[1] <= 512 * 512 < high[0] * high[1]

    columns, rows = processor.within(100_000).fit(4000, 4000, Detail.HIGH, MANY)
    assert 90_000 < columns * rows <= 100_000
    assert processor.within(0) == processor
    assert processor_of().within(1).fit(4000, 4000, Detail.HIGH, MANY) == (56, 56)


@table("values", [{"temporal_patch_size": 1}, {"min_pixels": 10**9}, {"patch_size": "14"}])
def test_a_folder_with_other_arithmetic_is_refused(values):
    with pytest.raises(UnusableFolder):
        QwenProcessor.of({**LIMITS, **values}, {}, takes_video=True)


def test_a_vision_model_of_an_unknown_type_or_without_the_picture_tokens_is_refused(tmp_path):
    with pytest.raises(UnusableFolder, match="phi3_v"):
        ModelAssets.load(a_vision_folder(tmp_path / "unknown", model_type="phi3_v"))

    folder = a_vision_folder(tmp_path / "other")
    plain = a_copy_of_the_model(tmp_path / "plain")
    shutil.copy(plain / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(UnusableFolder, match="image_pad"):
        ModelAssets.load(folder)


# Prompts


def test_each_picture_has_its_tokens_where_it_stands(assets):
    small, large = a_picture(), a_picture(3 * SIDE, 4 * SIDE)
    chat = a_chat(a_question("Which?", small, "or", large))

    prompt = assets.render(chat)
    assert [each.num_tokens for each in prompt.media] == [4, 12]
    assert prompt.num_media_tokens == len(pads(assets, prompt.token_ids)) == 16
    assert sources(prompt) == [small.source, large.source]
    for each in prompt.media:
        span = range(each.start, each.start + each.num_tokens)
        assert set(span) <= set(pads(assets, prompt.token_ids))
    unexpanded = assets.tokenizer.encode(prompt.text)
    assert prompt.num_tokens == len(unexpanded) - 2 + 16


def sources(prompt: Prompt) -> list[object]:
    return [each.source for each in prompt.media]


def test_pictures_of_earlier_turns_and_of_tool_results_keep_their_order(assets):
    first, second = a_picture(), a_picture(4 * SIDE, SIDE)
    result = Message(Role.TOOL, (TextPart("See"), second), tool_call_id="call_1")
    chat = a_chat(a_question(first, "?"), ("assistant", "Red."), result, ("user", "And?"))

    assert sources(assets.render(chat)) == [first.source, second.source]


def test_pictures_and_clips_are_shown_whatever_the_template_hides(assets):
    """The template shows parts of type image in user and tool messages only."""
    picture = a_picture()
    chat = a_chat(a_question("Hi"), a_question(picture, role=Role.ASSISTANT), a_question("?"))
    assert sources(assets.render(chat)) == [picture.source]

    bare = a_chat(a_question("Look", picture), rendering=Rendering(uses_template=False))
    assert assets.render(bare).num_media_tokens == 4
    # A clip has tokens for each pair of frames, and comes before pictures.
    prompt = assets.render(a_chat(a_question("What moves?", a_clip(5))))
    assert [each.grid for each in prompt.media] == [(3, 2, 2)]
    assert assets.render(a_chat(a_question(a_clip(), picture))).num_media_tokens == 12


def test_a_template_for_strings_shows_pictures_too_also_after_instructions(tmp_path):
    picture = a_picture()
    assets = ModelAssets.load(a_vision_folder(tmp_path / "strings", STRINGS))
    prompt = assets.render(a_chat(a_question("Look:", picture, "What is it?")))
    assert sources(prompt) == [picture.source]
    assert "Look:\n<|vision_start|><|image_pad|><|vision_end|>\nWhat" in (prompt.text or "")

    refused = "{% if message.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    no_system = STRINGS.replace("<|im_start|>{{", refused + "<|im_start|>{{")
    assets = ModelAssets.load(a_vision_folder(tmp_path / "no-system", no_system))
    prompt = assets.render(a_chat(("system", "Be brief."), a_question(picture, "What?")))
    assert sources(prompt) == [picture.source]
    assert "Be brief." in (prompt.text or "")


# Refusals


def refusal(assets: ModelAssets, chat: Conversation, **values: int) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        assets.render(chat, Encoding(**values))
    return refused.value


HUGE = MediaPart(MediaKind.IMAGE, Picture(1, 1, bytes(25 * 2**20)), "second")


@table(
    "param, chat",
    [
        # GenAI would give the video the positions of the picture.
        ("v", a_chat(a_question(a_picture(), a_clip()))),
        # A template of the request shows no pictures.
        ("chat_template", a_chat(a_question(a_picture()), rendering=Rendering(template=STRINGS))),
        # A message to the engine may not have more pixels.
        ("second", a_chat(a_question(HUGE, HUGE))),
        # A text must not have the tokens of pictures.
        *(
            ("messages", a_chat(a_question(f"See {token}", *pictures)))
            for token in ("<|image_pad|>", "<|vision_start|>", "<|video_pad|>")
            for pictures in ((), (a_picture(),))
        ),
    ],
)
def test_what_cannot_be_shown_is_refused(assets, param, chat):
    assert refusal(assets, chat).param == param


def test_a_text_model_takes_no_pictures_and_a_model_for_pictures_no_clips(tmp_path):
    picture, clip = a_chat(a_question("?", a_picture())), a_chat(a_question("?", a_clip()))
    error = refusal(ModelAssets.load(MODEL), picture)
    assert error.param == "p"
    assert "text only" in str(error)

    assets = ModelAssets.load(a_vision_folder(tmp_path / "three", model_type="qwen3_vl"))
    assert refusal(assets, clip).param == "v"
    assert assets.render(picture).num_media_tokens == 4


def test_raw_prompts_must_not_have_the_tokens_of_pictures_and_none_are_truncated(assets):
    for prompt in ("a<|image_pad|>", [1, assets.tokenizer.token_id("<|image_pad|>")]):
        with pytest.raises(InvalidRequest) as refused:
            assets.encode_prompt(prompt)
        assert refused.value.param == "prompt"

    chat = a_chat(a_question("?", a_picture(4 * SIDE, 4 * SIDE)))
    assert refusal(assets, chat, max_tokens=10).param == "truncate_prompt_tokens"
    assert assets.render(chat, Encoding(max_tokens=100)).num_media_tokens == 16


# Gemma 3, LLaVA, LLaVA-NeXT and InternVL. The folders come from the tests of the engine. The
# tokenizer has tokens for each byte, and for two or three line breaks, like Gemma's.

# A picture as the processor of each family writes it into the text, without the repeated token.
SHOWN = {
    "gemma3": ("<start_of_image>", "<image_soft_token>", "<end_of_image>"),
    "llava": ("", "<image>", ""),
    "llava_next": ("", "<image>", ""),
    "internvl_chat": ("<img>", "<IMG_CONTEXT>", "</img>"),
}


@pytest.fixture(scope="module", params=SHOWN)
def sized(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ModelAssets]:
    name: str = request.param
    return name, assets_of(name, tmp_path_factory.mktemp(name) / "model")


def assets_of(name: str, path: Path) -> ModelAssets:
    return ModelAssets.load(a_family_folder(name, path))


def fitted(assets: ModelAssets, width: int = 90, height: int = 60) -> MediaPart:
    assert assets.vision is not None
    width, height = assets.vision.fit(width, height, Detail.AUTO, MANY)
    return a_picture(width, height)


def test_each_picture_has_its_tokens_in_other_families(sized):
    name, assets = sized
    small, wide = fitted(assets), fitted(assets, 300, 40)
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


def test_the_engine_takes_what_the_gateway_renders(sized):
    _, assets = sized
    one, wide = fitted(assets), fitted(assets, 300, 40)
    prompt = assets.render(a_chat(a_question(one, "or", wide), ("assistant", "A."), ("user", "?")))
    media = tuple(
        MediaInput(each.start, each.grid, each.source.height, each.source.width)
        for each in prompt.media
    )

    model = VisionModel.read(assets.folder.path)
    model.check(np.array(prompt.token_ids, np.int64), media)

    assert len(media) == 2


@table("has_picture", [False, True])
def test_a_clip_and_a_text_with_the_tokens_of_pictures_are_refused(sized, has_picture):
    _, assets = sized
    assert assets.vision is not None
    pictures = [fitted(assets)] * has_picture
    for token in (*assets.vision.markup.reserved, assets.vision.markup.image):
        assert refusal(assets, a_chat(a_question(f"See {token}", *pictures))).param == "messages"

    assert refusal(assets, a_chat(a_question(a_clip(), "What moves?"))).param == "v"


def test_prompts_of_gemma_are_those_of_its_processor(tmp_path):
    """The processor writes two line breaks before and behind each picture, and the tokenizer joins
    three: that of the turn and these two. The ids come from Hugging Face's Gemma3Processor
    (transformers 5.0.0)."""
    assets = assets_of("gemma3", tmp_path / "model")
    prompt = assets.render(a_chat(a_question(fitted(assets), "What?")))
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


def test_an_option_for_pixels_counts_where_there_are_several_sizes(sized):
    family, assets = sized
    vision = assets.vision
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
