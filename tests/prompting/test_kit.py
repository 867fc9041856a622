"""A model's kit: chats and bare prompts become token ids."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.core.errors import InvalidRequest
from serving.core.request import Tool
from serving.prompting.kit import ModelKit

from . import templates
from .builders import MODEL, a_chat, a_copy_of_the_model

HI = a_chat(("user", "Hi"))


@pytest.fixture(scope="module")
def kit():
    return ModelKit.load(MODEL)


def test_a_chat_becomes_the_ids_of_its_rendered_text(kit):
    prompt = kit.render(HI)

    assert prompt.text is not None
    assert prompt.text.startswith("<|im_start|>user\nHi<|im_end|>")
    assert list(prompt.token_ids) == kit.tokenizer.encode(prompt.text)
    assert prompt.num_tokens == len(prompt.token_ids)


def test_a_prompt_that_ends_in_an_open_thought_says_so(kit):
    thinking = a_chat(("user", "Hi"), template_kwargs={"enable_thinking": True})

    assert kit.render(thinking).opens_reasoning
    assert not kit.render(HI).opens_reasoning


def test_a_thought_that_a_user_opens_is_not_the_models(kit):
    assert not kit.render(a_chat(("user", "What is <think>"))).opens_reasoning


def test_a_bare_text_goes_to_the_model_as_it_is(kit):
    prompt = kit.encode_prompt("Once upon")

    assert prompt.text == "Once upon"
    assert list(prompt.token_ids) == kit.tokenizer.encode_raw("Once upon")
    assert not prompt.opens_reasoning


def test_ids_go_to_the_model_as_they_are(kit):
    prompt = kit.encode_prompt((5, 6, 3071))

    assert prompt.token_ids == (5, 6, 3071)
    assert prompt.text is None


@pytest.mark.parametrize("wrong", [-1, 3072])
def test_ids_outside_the_vocabulary_are_refused(kit, wrong):
    with pytest.raises(InvalidRequest, match=f"{wrong} is no token") as caught:
        kit.encode_prompt([5, wrong])

    assert caught.value.param == "prompt"
    assert caught.value.code == "invalid_value"


@pytest.mark.parametrize("empty", ["", [], ()])
def test_an_empty_prompt_is_refused(kit, empty):
    with pytest.raises(InvalidRequest, match="empty") as caught:
        kit.encode_prompt(empty)

    assert caught.value.param == "prompt"


def test_half_a_surrogate_pair_is_refused(kit):
    with pytest.raises(InvalidRequest, match="surrogate"):
        kit.encode_prompt("a\ud83d")
    with pytest.raises(InvalidRequest, match="surrogate"):
        kit.render(a_chat(("user", "a\ud83d")))


def test_prompts_can_be_made_in_threads(kit):
    chats = [a_chat(("user", f"Count to {n}.")) for n in range(40)]

    with ThreadPoolExecutor(4) as threads:
        prompts = list(threads.map(kit.render, chats))

    assert prompts == [kit.render(chat) for chat in chats]


def test_it_tells_what_the_folder_says(kit):
    assert kit.max_context == 2048
    assert kit.defaults.eos_token_ids == (2,)
    assert "<tool_call>" in kit.template_text


def a_kit_with(tmp_path, **files: str) -> ModelKit:
    path = a_copy_of_the_model(tmp_path / "m", without=("chat_template.jinja", "*tokenizer.xml"))
    for name, text in files.items():
        place = path / name.replace("__", "/")
        place.parent.mkdir(exist_ok=True)
        place.with_suffix(".jinja").write_text(text)
    return ModelKit.load(path)


def test_without_a_chat_template_a_model_cannot_chat_but_completes(tmp_path):
    kit = a_kit_with(tmp_path)

    with pytest.raises(InvalidRequest, match=r"no chat template.*/completions"):
        kit.render(HI)

    assert kit.template_text is None
    assert kit.encode_prompt("Hi").token_ids


def test_requests_with_tools_get_the_template_for_tools(tmp_path):
    kit = a_kit_with(
        tmp_path,
        chat_template=templates.CHATML,
        additional_chat_templates__tool_use=templates.TOOLS,
    )

    assert kit.render(HI).text == "<|user|>Hi\n<|assistant|>"
    assert kit.render(a_chat(("user", "Hi"), tools=(Tool("ping"),))).text.startswith('[{"type"')
    assert kit.template_text == templates.TOOLS


def test_a_template_that_makes_nothing_is_refused(tmp_path):
    kit = a_kit_with(tmp_path, chat_template="{{ '' }}")

    with pytest.raises(InvalidRequest, match="empty"):
        kit.render(HI)
