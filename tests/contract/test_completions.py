"""completions through openai-python."""

from __future__ import annotations

import openai
import pytest

from tests.conftest import until_in_parts
from tests.contract.tiny_chat import MODEL, prompt_of

pytestmark = pytest.mark.system

PROMPT = prompt_of("Count to 30.")
COUNT = " ".join(str(number) for number in range(1, 31))


def test_a_raw_prompt_is_completed(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=200)

    assert answer.choices[0].text == COUNT
    assert answer.choices[0].finish_reason == "stop"


def test_the_default_length_depends_on_the_url_tree(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT)

    assert answer.usage is not None
    if "/v3" in str(client.base_url):
        assert answer.choices[0].text == COUNT
    else:
        assert answer.usage.completion_tokens == 16
        assert answer.choices[0].finish_reason == "length"


def test_several_prompts_have_a_choice_each(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=[PROMPT, PROMPT.replace("30", "5")], n=2, max_tokens=200
    )

    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == [COUNT, COUNT, "1 2 3 4 5", "1 2 3 4 5"]


def test_a_stream_adds_up(client: openai.OpenAI) -> None:
    # The client's own type forbids the null finish reason that every server streams.
    loose = openai.OpenAI(base_url=client.base_url, api_key=client.api_key)
    chunks = until_in_parts(
        lambda: loose.completions.create(model=MODEL, prompt=PROMPT, max_tokens=200, stream=True),
        lambda chunk: chunk.choices[0].text,
        at_least=5,
    )

    assert "".join(chunk.choices[0].text for chunk in chunks) == COUNT
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_token_ids_are_a_prompt_too(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=[1, 5, 6, 7], max_tokens=2)

    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 4


def test_a_stop_string_belongs_to_the_stream_of_ovms_only(client: openai.OpenAI) -> None:
    loose = openai.OpenAI(base_url=client.base_url, api_key=client.api_key)
    stream = loose.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=200, stop=" 7", stream=True
    )
    text = "".join(chunk.choices[0].text for chunk in stream)

    assert text == ("1 2 3 4 5 6 7" if "/v3" in str(client.base_url) else "1 2 3 4 5 6")
