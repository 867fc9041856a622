"""A platform from its start to its figures: the only run of the whole in `make test`.

Each test continues from the tests before.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
import openai
import pytest

from tests import shapes, stores
from tests.conftest import Running, run_platform, until
from tests.contract.tiny_chat import MODEL, PARIS, QUESTION, WEATHER, WEATHER_QUESTION
from tests.shapes import data_url, encoded
from tests.system.clients import new_key, openai_of, served, vinery
from tests.system.ledger import is_written

pytestmark = pytest.mark.smoke


class Figures(NamedTuple):
    """The platform's report about the requests of a key."""

    num_requests: int
    num_errors: int
    num_prompt_tokens: int
    num_output_tokens: int


@dataclass
class Story:
    """The platform, one of its keys, and the usage in the answers to this key."""

    platform: Running
    client: openai.OpenAI
    spent: list[Any] = field(default_factory=list)

    def chat(self, model: str, messages: Any, **fields: Any) -> Any:
        answer = self.client.chat.completions.create(model=model, messages=messages, **fields)
        self.spent.append(answer.usage)
        return answer.choices[0].message

    def stream(self, messages: Any, **fields: Any) -> Iterator[str]:
        """The parts of its text."""
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
        chunks = self.client.chat.completions.create(model=MODEL, messages=messages, **fields)
        for chunk in chunks:
            if chunk.usage:
                self.spent.append(chunk.usage)
            yield from (each.delta.content or "" for each in chunk.choices)

    def figures(self) -> Figures:
        num_prompt_tokens = sum(each.prompt_tokens for each in self.spent)
        num_output_tokens = sum(getattr(each, "completion_tokens", 0) for each in self.spent)
        return Figures(len(self.spent), 0, num_prompt_tokens, num_output_tokens)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with run_platform(tmp_path_factory.mktemp("smoke") / "home") as platform:
        yield Story(platform, openai_of(platform, new_key(platform, "smoke")))


def test_it_comes_up_chats_streams_and_calls_with_openais_client(story: Story) -> None:
    roles = ("web", "node", "jobs", "engine")

    nums = [len(story.platform.pids(role)) for role in roles]

    assert nums == [stores.NUM_WEB_PROCESSES, 1, 1, 1]

    assert story.chat(MODEL, QUESTION).content == PARIS
    assert "".join(story.stream(QUESTION)) == PARIS
    (call,) = story.chat(MODEL, WEATHER_QUESTION, tools=[WEATHER]).tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_a_picture_and_an_embedding_are_answered(story: Story) -> None:
    names = {"tiny-vision", "tiny-embed"}
    for name in names:
        vinery(story.platform, "model", "add", name)
    until(lambda: served(story.platform).keys() >= names, timeout_s=60)

    picture = data_url(encoded(shapes.a_shape("circle", "red")))
    content = [
        {"type": "text", "text": "What is in the picture?"},
        {"type": "image_url", "image_url": {"url": picture}},
    ]
    message = story.chat("tiny-vision", [{"role": "user", "content": content}])
    embedded = story.client.embeddings.create(model="tiny-embed", input="Paris")
    story.spent.append(embedded.usage)

    assert message.content == "A red circle."
    assert sum(each**2 for each in embedded.data[0].embedding) == pytest.approx(1, abs=1e-5)


def test_a_stream_outlives_its_engine(story: Story) -> None:
    parts = story.stream(
        [{"role": "user", "content": "Count to 60."}],
        temperature=0,
        max_tokens=700,
        extra_body={"ignore_eos": True},
    )

    text = next(parts)
    killed = story.platform.kill("engine")
    text += "".join(parts)

    assert text.startswith(" ".join(map(str, range(1, 61))))
    assert story.spent[-1].completion_tokens == 700
    until(lambda: story.platform.has_replaced("engine", killed))
    until(lambda: served(story.platform).keys() >= {MODEL})
    assert story.chat(MODEL, QUESTION).content == PARIS


def test_a_limit_refuses_and_the_console_shows_usage_to_the_token(story: Story) -> None:
    limited = openai_of(story.platform, new_key(story.platform, "limited"))
    keys = json.loads(vinery(story.platform, "key", "list", "--json"))
    (number,) = [str(key["id"]) for key in keys if key["name"] == "limited"]
    quota = ("--metric", "requests", "--window", "day", "--amount", "1")
    vinery(story.platform, "limit", "set", "--key", number, *quota)

    limited.chat.completions.create(model=MODEL, messages=QUESTION)
    with pytest.raises(openai.RateLimitError) as refused:
        limited.chat.completions.create(model=MODEL, messages=QUESTION)

    assert refused.value.code == "insufficient_quota"

    until(lambda: is_written(story.platform))

    with httpx.Client(base_url=story.platform.base_url, follow_redirects=True) as browser:
        shown = figures_of_keys(page_after_login(browser, story.platform, "/console/usage/?by=key"))

    assert shown["smoke"] == story.figures()
    assert shown["limited"][:2] == (2, 1)
    assert "balanced" in vinery(story.platform, "usage", "verify")


def page_after_login(browser: httpx.Client, platform: Running, path: str) -> str:
    browser.get(path)
    page = browser.post(
        "/accounts/login/",
        params={"next": path},
        data={
            "login": platform.admin_user,
            "password": platform.admin_password,
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
        },
    )
    assert page.status_code == 200
    return page.text


def figures_of_keys(page: str) -> dict[str, Figures]:
    """Those in the table of a page of usage, by the name of the key."""
    columns = ("Requests", "Errors", "Input tokens", "Output tokens")
    found = {}
    of_a_key = r'<tr><th scope="row"><a [^>]*>(\w+) [^<]*</a></th>(.*?)</tr>'
    for name, row in re.findall(of_a_key, page, re.DOTALL):
        cells = dict(re.findall(r'data-name="([^"]+)">(?:<a [^>]*>)?([\d,]+)<', row))
        found[name] = Figures(*(int(cells[each].replace(",", "")) for each in columns))
    return found
