"""The values in a model's folder, and the errors of broken folders."""

import pytest

from tests.tables import table
from vinery_serving.prompting.folder import (
    ChatTemplates,
    GenerationDefaults,
    ModelFolder,
    UnusableFolder,
)

from .builders import MODEL, a_copy_of_the_model, a_folder


def test_it_reads_the_reference_model():
    folder = ModelFolder.read(MODEL)

    assert folder.model_type == "qwen3"
    assert folder.max_context == 2048
    assert folder.defaults == GenerationDefaults(do_sample=False, eos_token_ids=(2,))
    assert folder.named_tokens["eos_token"] == "<|im_end|>"
    assert folder.templates == ChatTemplates((MODEL / "chat_template.jinja").read_text())
    assert folder.tokenizer_class == "PreTrainedTokenizerFast"
    assert folder.added_tokens["2"]["content"] == "<|im_end|>"


@table("config", [{}, {"tokenizer_class": 5, "added_tokens_decoder": ["a"]}])
def test_missing_tokenizer_values_are_none(tmp_path, config):
    folder = ModelFolder.read(a_folder(tmp_path, tokenizer_config=config))

    assert folder.tokenizer_class is None
    assert folder.added_tokens == {}


def test_the_end_token_may_be_in_config_json_and_the_model_in_a_language_part(tmp_path):
    path = a_folder(tmp_path, config={"eos_token_id": 5})
    assert ModelFolder.read(path).defaults.eos_token_ids == (5,)

    (path / "openvino_model.xml").rename(path / "openvino_language_model.xml")
    assert ModelFolder.read(path)


def test_it_reads_how_the_authors_sample(tmp_path):
    config = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05}
    config |= {"repetition_penalty": 1.1, "presence_penalty": 1.5, "frequency_penalty": 0.5}
    config |= {"max_new_tokens": 512, "eos_token_id": [7, 9]}
    sampling = GenerationDefaults(*(0.6, 0.95, 20, 0.05, None, 0.5, 1.5, 1.1), True, 512, (7, 9))

    folder = ModelFolder.read(a_folder(tmp_path, generation_config=config))

    assert folder.defaults == sampling


@table(
    "config, tokenizer_config, expected",
    [
        ({"max_position_embeddings": 4096, "n_ctx": 8}, {}, 4096),
        ({"n_positions": 1024}, {}, 1024),
        ({"seq_length": 2048}, {}, 2048),
        ({"text_config": {"max_position_embeddings": 8192}}, {}, 8192),
        ({"max_position_embeddings": 4096}, {"model_max_length": 1024}, 1024),
        ({"max_position_embeddings": 4096}, {"model_max_length": 8192}, 4096),
        ({"max_position_embeddings": 4096}, {"model_max_length": 10**30}, 4096),
        ({}, {"model_max_length": 512}, 512),
        ({}, {"model_max_length": 10**30}, None),
        ({"sliding_window": 1024}, {}, None),
        ({}, {}, None),
    ],
)
def test_it_finds_the_context(tmp_path, config, tokenizer_config, expected):
    path = a_folder(tmp_path, config=config, tokenizer_config=tokenizer_config)

    assert ModelFolder.read(path).max_context == expected


def test_templates_are_found_in_each_file_before_the_older_ones(tmp_path):
    def found() -> ChatTemplates | None:
        return ModelFolder.read(tmp_path).templates

    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]

    a_folder(tmp_path)
    assert found() is None
    a_folder(tmp_path, chat_template={"chat_template": "old"})
    assert found() == ChatTemplates("old")
    (tmp_path / "chat_template.json").unlink()
    a_folder(tmp_path, tokenizer_config={"chat_template": named})
    assert found() == ChatTemplates("a", "b")
    (tmp_path / "chat_template.jinja").write_text("mine")
    assert found() == ChatTemplates("mine")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("mine with tools")
    assert found() == ChatTemplates("mine", "mine with tools")


def test_an_option_replaces_the_template_of_the_folder_and_the_tokenizers_is_the_last(tmp_path):
    own = tmp_path / "own.jinja"
    own.write_text("from a file")
    assert ModelFolder.read(MODEL, str(own)).templates == ChatTemplates("from a file")
    assert ModelFolder.read(MODEL, "a text").templates == ChatTemplates("a text")
    with pytest.raises(UnusableFolder, match="There is no file /none, which the option chat_temp"):
        ModelFolder.read(MODEL, "/none")
    path = a_copy_of_the_model(tmp_path / "m", without=("chat_template.jinja",))
    assert ModelFolder.read(path).templates == ModelFolder.read(MODEL).templates


def test_tokens_may_be_objects_or_in_the_older_file(tmp_path):
    path = a_folder(
        tmp_path,
        tokenizer_config={"bos_token": {"content": "<s>"}, "eos_token": None},
        special_tokens_map={"bos_token": "<old>", "eos_token": "</s>"},
    )

    assert ModelFolder.read(path).named_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config.json": "{"}, r"config\.json is broken JSON"),
        ({"generation_config.json": "[]"}, "must hold a JSON object"),
        ({"generation_config.json": '{"temperature": "hot"}'}, "temperature must be a number"),
        ({"generation_config.json": '{"eos_token_id": ["</s>"]}'}, "eos_token_id must be token id"),
        ({"tokenizer_config.json": '{"chat_template": [1]}'}, "neither a text nor a list"),
        (
            {"tokenizer_config.json": '{"chat_template": [{"name": "x", "template": ""}]}'},
            "'default'",
        ),
        ({"openvino_tokenizer.xml": "<net>"}, "broken XML"),
        ({"chat_template.jinja": b"\xff\xfe\x00"}, "cannot be read"),
        ({"openvino_model.xml": None}, r"no openvino_model\.xml"),
        ({"tokenizer.json": None}, "no tokenizer"),
    ],
)
def test_the_error_names_the_broken_file_and_the_reason(tmp_path, changes, words):
    path = a_folder(tmp_path)
    for name, content in changes.items():
        if content is None:
            (path / name).unlink()
        else:
            (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(UnusableFolder, match=words):
        ModelFolder.read(path)
    with pytest.raises(UnusableFolder, match="There is no folder"):
        ModelFolder.read(tmp_path / "none")
