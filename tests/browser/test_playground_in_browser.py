"""A person chooses a model in the playground, asks, stops an answer, and reads the code."""

import re

import pytest

from tests.browser.conftest import Administrator

pytestmark = pytest.mark.system


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
