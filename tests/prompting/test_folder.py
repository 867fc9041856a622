"""The values in a model's folder, and the errors of broken folders."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("config", [{}, {"tokenizer_class": 5, "added_tokens_decoder": ["a"]}])
def test_missing_tokenizer_values_are_none(tmp_path, config):
    folder = ModelFolder.read(a_folder(tmp_path, tokenizer_config=config))

    assert folder.tokenizer_class is None
    assert folder.added_tokens == {}


def test_it_reads_how_the_authors_sample(tmp_path):
    config = {
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "presence_penalty": 1.5,
        "frequency_penalty": 0.5,
        "max_new_tokens": 512,
        "eos_token_id": [7, 9],
    }

    folder = ModelFolder.read(a_folder(tmp_path, generation_config=config))

    assert folder.defaults == GenerationDefaults(
        True, 0.6, 0.95, 20, 0.05, 1.1, 1.5, 0.5, 512, (7, 9)
    )


def test_the_end_token_may_be_in_config_json(tmp_path):
    folder = ModelFolder.read(a_folder(tmp_path, config={"eos_token_id": 5}))

    assert folder.defaults.eos_token_ids == (5,)


@pytest.mark.parametrize(
    ("config", "tokenizer_config", "expected"),
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


def test_a_template_file_has_precedence(tmp_path):
    path = a_folder(tmp_path, tokenizer_config={"chat_template": "other"})
    (path / "chat_template.jinja").write_text("mine")

    assert ModelFolder.read(path).templates == ChatTemplates("mine")


def test_a_second_template_file_may_be_for_tools(tmp_path):
    path = a_folder(tmp_path)
    (path / "chat_template.jinja").write_text("mine")
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "tool_use.jinja").write_text("mine with tools")

    assert ModelFolder.read(path).templates == ChatTemplates("mine", "mine with tools")


def test_it_reads_named_templates(tmp_path):
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]

    folder = ModelFolder.read(a_folder(tmp_path, tokenizer_config={"chat_template": named}))

    assert folder.templates == ChatTemplates("a", "b")


def test_it_reads_the_older_template_file(tmp_path):
    path = a_folder(tmp_path, chat_template={"chat_template": "old"})

    assert ModelFolder.read(path).templates == ChatTemplates("old")


def test_the_template_in_the_openvino_tokenizer_is_the_last_resort(tmp_path):
    path = a_copy_of_the_model(tmp_path / "m", without=("chat_template.jinja",))

    assert ModelFolder.read(path).templates == ModelFolder.read(MODEL).templates


def test_a_folder_may_have_no_template(tmp_path):
    assert ModelFolder.read(a_folder(tmp_path)).templates is None


def test_tokens_may_be_objects_or_in_the_older_file(tmp_path):
    path = a_folder(
        tmp_path,
        tokenizer_config={"bos_token": {"content": "<s>"}, "eos_token": None},
        special_tokens_map={"bos_token": "<old>", "eos_token": "</s>"},
    )

    assert ModelFolder.read(path).named_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_it_refuses_a_missing_folder(tmp_path):
    with pytest.raises(UnusableFolder, match="There is no folder"):
        ModelFolder.read(tmp_path / "none")


def test_it_refuses_a_folder_without_a_model(tmp_path):
    path = a_folder(tmp_path)
    (path / "openvino_model.xml").unlink()

    with pytest.raises(UnusableFolder, match=r"no openvino_model\.xml"):
        ModelFolder.read(path)


def test_the_language_part_of_a_vision_model_is_a_model(tmp_path):
    path = a_folder(tmp_path)
    (path / "openvino_model.xml").rename(path / "openvino_language_model.xml")

    assert ModelFolder.read(path)


def test_it_refuses_a_folder_without_a_tokenizer(tmp_path):
    path = a_folder(tmp_path)
    (path / "tokenizer.json").unlink()

    with pytest.raises(UnusableFolder, match="no tokenizer"):
        ModelFolder.read(path)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config": "{"}, r"config\.json is broken JSON"),
        ({"generation_config": "[]"}, "must hold a JSON object"),
        ({"generation_config": {"temperature": "hot"}}, "temperature must be a number"),
        ({"generation_config": {"eos_token_id": ["</s>"]}}, "eos_token_id must be token ids"),
        ({"tokenizer_config": {"chat_template": [1]}}, "neither a text nor a list"),
        ({"tokenizer_config": {"chat_template": [{"name": "x", "template": ""}]}}, "'default'"),
    ],
)
def test_the_error_names_the_broken_file_and_the_reason(tmp_path, files, words):
    with pytest.raises(UnusableFolder, match=words):
        ModelFolder.read(a_folder(tmp_path, **files))


def test_broken_xml_of_the_tokenizer_is_refused(tmp_path):
    path = a_folder(tmp_path)
    (path / "openvino_tokenizer.xml").write_text("<net>")

    with pytest.raises(UnusableFolder, match="broken XML"):
        ModelFolder.read(path)


def test_a_template_that_is_not_text_is_refused(tmp_path):
    path = a_folder(tmp_path)
    (path / "chat_template.jinja").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(UnusableFolder, match="cannot be read"):
        ModelFolder.read(path)


def test_an_option_replaces_the_template_of_the_folder(tmp_path: Path) -> None:
    own = tmp_path / "own.jinja"
    own.write_text("from a file")

    assert ModelFolder.read(MODEL, str(own)).templates == ChatTemplates("from a file")
    assert ModelFolder.read(MODEL, "a text").templates == ChatTemplates("a text")
    with pytest.raises(UnusableFolder, match="There is no file /none, which the option chat_temp"):
        ModelFolder.read(MODEL, "/none")
