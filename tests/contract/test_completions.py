"""completions through openai-python."""

import httpx
import openai

from tests.conftest import until_in_parts

from .tiny_chat import MODEL, lenient, numbers, prompt_of

PROMPT = prompt_of("Count to 30.")
COUNT = numbers(30)


def test_the_default_length_depends_on_the_url_tree(client: openai.OpenAI, tree: str) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT)
    whole = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=200)

    assert (whole.choices[0].text, whole.choices[0].finish_reason) == (COUNT, "stop")
    assert answer.usage is not None
    if tree == "v3":
        assert answer.choices[0].text == COUNT
    else:
        assert answer.usage.completion_tokens == 16
        assert answer.choices[0].finish_reason == "length"


def test_several_prompts_have_a_choice_each(client: openai.OpenAI) -> None:
    prompts = [PROMPT, prompt_of("Count to 5.")]
    answer = client.completions.create(model=MODEL, prompt=prompts, n=2, max_tokens=200)

    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == [COUNT, COUNT, numbers(5), numbers(5)]


def test_a_stream_adds_up(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200}
    chunks = until_in_parts(
        lambda: lenient(client).completions.create(**asked, stream=True),
        lambda chunk: chunk.choices[0].text,
        at_least=5,
    )

    assert "".join(chunk.choices[0].text for chunk in chunks) == COUNT
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_parsed_completion_has_its_reasoning_and_the_time_of_its_tokens(
    raw: httpx.Client,
) -> None:
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    asked = {"model": MODEL, "prompt": f"{prompt}<think>\n", "max_tokens": 200}
    extras = {"parse_output": True, "return_arrival_time": True}
    (plain,), (parsed,) = (
        raw.post("/v1/completions", json={**asked, **more}).json()["choices"]
        for more in ({}, extras)
    )
    reasoning, text = plain["text"].split("\n\n\n")
    assert (parsed["reasoning_content"], parsed["text"]) == (reasoning, text)
    assert parsed["arrival_time"] > 0
