"""A person chooses models in the playground, asks, stops an answer, makes up the result of a tool,
and reads the code."""

import json
import re
from typing import Any, Final
from urllib.parse import quote

from playwright.sync_api import Page, Route

from tests.browser.conftest import Administrator, removed_after
from tests.contract.tiny_chat import GET_WEATHER, SUNNY, WEATHER
from tests.system.clients import vinery
from tests.tables import table

SCHEMA: Final = """{"type": "object", "required": ["name", "age"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}"""


def test_a_question_is_answered_stopped_and_shown_as_code(admin: Administrator) -> None:
    page = admin.go("console/playground/?model=tiny-chat")
    page.locator("#model option[value=tiny-chat]").wait_for(state="attached")
    assert page.get_by_label("Model", exact=True).input_value() == "tiny-chat"
    assert not page.get_by_role("button", name="Stop").is_visible()
    question = page.get_by_label("Your message")
    question.fill("What is the capital of France?")
    question.press("Enter")
    answer = page.locator(".answer").last
    answer.get_by_text(re.compile(r"first token after .* output tokens · ")).wait_for()
    assert "Paris" in answer.locator("> .said").inner_text()
    assert admin.fits()

    page.get_by_text("Parameters").click()
    page.get_by_label("Temperature").fill("9")
    page.get_by_role("button", name="Ask again").click()
    page.locator(".answer .error").get_by_text("`temperature` must be at most 2.").wait_for()
    # The browser logs the status, too.
    admin.complaints[:] = [each for each in admin.complaints if "400" not in each]
    page.get_by_label("Temperature").fill("0.5")

    page.get_by_role("button", name="View code").click()
    code = page.locator("#code-text")
    assert '"temperature": 0.5' in code.inner_text()
    for language, words in (
        ("Python", "client.chat.completions.create("),
        ("JavaScript", "new OpenAI("),
        ("Anthropic", '"max_tokens": 1024'),
    ):
        page.get_by_role("button", name=language).click()
        assert words in code.inner_text()
    page.get_by_role("button", name="Close").click()

    # The stream is held, so that the answer cannot end before the button is pressed.
    page.route("**/v1/chat/completions", lambda route: None)
    page.get_by_role("button", name="Ask again").click()
    page.get_by_role("button", name="Stop").click()
    answer.get_by_text("stopped by you").wait_for()
    page.reload()
    assert page.locator(".turn").count() == 2
    # A new secret may be unknown for a moment, and the script asks again.
    admin.complaints[:] = [each for each in admin.complaints if "401" not in each]


def test_a_tool_is_called_and_its_result_is_made_up(admin: Administrator) -> None:
    page = admin.go("console/playground/?model=tiny-chat")
    page.locator("#model option[value=tiny-chat]").wait_for(state="attached")
    page.get_by_text("Parameters").click()
    tools = page.get_by_label("Tools")
    tools.fill(json.dumps([WEATHER]))
    _ask(page, "What is the weather in Paris?")
    result = page.get_by_label("Result of get_weather")
    result.fill('{"temperature": 21, "condition": "sunny"}')
    assert "Paris" in page.locator(".call code").inner_text()

    # A request that cannot be written changes nothing.
    tools.fill("[")
    page.get_by_role("button", name="Send the results").click()
    page.get_by_role("status").get_by_text("The list of tools cannot be read.").wait_for()
    tools.fill(json.dumps([WEATHER]))
    page.get_by_role("button", name="Send the results").click()
    page.get_by_text("It is 21 degrees and sunny in Paris.").wait_for()

    page.get_by_role("button", name="Copy link").click()
    link = page.locator("#link").text_content()
    assert link
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".turn").count() == 0
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("It is 21 degrees and sunny in Paris.").wait_for()
    page.get_by_role("button", name="Clear").click()
    page.evaluate("link => { location.href = link; }", link)  # as into the address bar
    page.get_by_text("It is 21 degrees and sunny in Paris.").wait_for()
    assert result.input_value() == '{"temperature": 21, "condition": "sunny"}'
    assert admin.fits()

    page.evaluate("link => { location.hash = link; }", '{"turns": [1]}')
    page.get_by_role("status").get_by_text("The set-up in this link cannot be read.").wait_for()
    page.locator("#model option[value=tiny-chat]").wait_for(state="attached")
    admin.complaints[:] = [each for each in admin.complaints if "401" not in each]


def test_a_message_waits_until_the_models_are_listed(admin: Administrator) -> None:
    held: list[Route] = []
    admin.page.route("**/v1/models?all=true", lambda route: held.append(route))
    page = admin.go("console/playground/?model=tiny-chat")
    question = page.get_by_label("Your message")
    question.fill("What is the capital of France?")
    question.press("Enter")
    page.get_by_role("status").get_by_text("Your message is sent as soon as").wait_for()
    assert question.input_value()
    while not held:
        page.wait_for_timeout(100)
    for route in held:
        route.continue_()
    page.get_by_role("status").get_by_text("Answered").wait_for()
    assert not question.input_value()
    admin.complaints[:] = [each for each in admin.complaints if "401" not in each]


_PARIS: Final = {"city": "Paris"}
_SCHEMA_OF_PERSON: Final = json.loads(SCHEMA)
_CALL: Final = {"name": "get_weather", "arguments": json.dumps(_PARIS)}
_QUESTION: Final = {"role": "user", "content": "What is the weather in Paris?"}
_REQUESTS: Final[dict[str, Any]] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            _QUESTION,
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "function", "function": _CALL}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": SUNNY},
        ],
        "tools": [WEATHER],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": _SCHEMA_OF_PERSON},
        },
        "max_completion_tokens": 9,
    },
    "responses": {
        "instructions": "Be brief.",
        "input": [
            _QUESTION,
            {"type": "function_call", "call_id": "c1", **_CALL},
            {"type": "function_call_output", "call_id": "c1", "output": SUNNY},
        ],
        "tools": [{"type": "function", **GET_WEATHER}],
        "text": {"format": {"type": "json_schema", "name": "person", "schema": _SCHEMA_OF_PERSON}},
        "max_output_tokens": 9,
    },
    "messages": {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            _QUESTION,
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "c1", "name": "get_weather", "input": _PARIS}
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": SUNNY}],
            },
        ],
        "tools": [
            {
                "name": GET_WEATHER["name"],
                "description": GET_WEATHER["description"],
                "input_schema": GET_WEATHER["parameters"],
            }
        ],
        "output_config": {"format": {"type": "json_schema", "schema": _SCHEMA_OF_PERSON}},
        "max_tokens": 9,
    },
}


@table("name", list(_REQUESTS))
def test_a_captured_request_of_each_api_opens_whole(admin: Administrator, name: str) -> None:
    shared = {"request": {"model": "tiny-chat", **_REQUESTS[name]}, "project": "1"}
    page = admin.go(f"console/playground/#{quote(json.dumps(shared))}")
    page.locator("#model option[value=tiny-chat]").wait_for(state="attached")

    assert page.locator(".turn").count() == 2
    assert page.locator(".call code").text_content() == 'get_weather {"city": "Paris"}'.replace(
        '": "', '":"' if name == "messages" else '": "'
    )
    assert page.get_by_label("Result of get_weather").input_value() == SUNNY
    page.get_by_text("Parameters").click()
    assert page.get_by_label("System prompt").input_value() == "Be brief."
    assert page.get_by_label("Max tokens").input_value() == "9"
    assert json.loads(page.get_by_label("Tools").input_value()) == [WEATHER]
    schema = page.get_by_label("JSON schema of the answer").input_value()
    assert json.loads(schema) == _SCHEMA_OF_PERSON
    admin.complaints[:] = [each for each in admin.complaints if "401" not in each]


def test_two_models_answer_side_by_side_in_a_schema(admin: Administrator) -> None:
    with removed_after(admin.platform, "tiny-chat-2"):
        vinery(admin.platform, "model", "add", "tiny-chat", "--name", "tiny-chat-2")
        vinery(admin.platform, "wait", "tiny-chat-2")
        page = admin.go("console/playground/?model=tiny-chat")
        page.locator("#compare option[value=tiny-chat-2]").wait_for(state="attached")
        page.get_by_label("Compare with").select_option("tiny-chat-2")
        page.get_by_text("Parameters").click()
        page.get_by_label("JSON schema of the answer").fill(SCHEMA)
        page.get_by_label("Token probabilities on hover").check()
        _ask(page, "Give me JSON for a person named Ada who is 36 years old.")
        for answer in page.locator(".answer").all():
            person = json.loads(answer.locator("> .said").inner_text())
            assert person == {"age": 36, "name": "Ada"}
            assert "%" in (answer.locator(".token").first.get_attribute("title") or "")
        assert admin.fits()
        admin.complaints[:] = [each for each in admin.complaints if "401" not in each]


def _ask(page: Page, question: str) -> None:
    page.get_by_label("Your message").fill(question)
    page.get_by_label("Your message").press("Enter")
    page.get_by_role("status").get_by_text("Answered").wait_for()
