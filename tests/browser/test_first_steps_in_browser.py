"""Newcomers in a real browser: an owner's first steps, and a colleague who is invited."""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

from playwright.sync_api import Browser, Page

from tests.browser.conftest import Administrator, follow, someone_at
from tests.conftest import Running, until
from tests.system.clients import vinery


@contextmanager
def newcomer(browser: Browser, platform: Running) -> Iterator[Administrator]:
    with someone_at(browser, platform) as someone:
        yield someone
        # The browser logs the moment in which the playground's new key is not known yet.
        someone.complaints[:] = [each for each in someone.complaints if "401" not in each]


def _ask_in_the_playground(someone: Administrator) -> None:
    someone.follow("Get a first answer")
    someone.page.get_by_label("Your message").fill("What is the capital of France?")
    someone.page.get_by_role("button", name="Send").click()
    someone.page.locator(".answer").get_by_text("first token after").wait_for()


def _steps(page: Page) -> list[str]:
    return page.locator(".steps > li").all_inner_texts()


def test_the_first_steps_lead_an_owner_to_an_answer_and_a_limit(
    chromium: Browser, running: Running
) -> None:
    name = f"new{token_hex(3)}"
    vinery(running, "organization", "create", name)
    vinery(running, "project", "create", "one", "--organization", name)
    made = vinery(running, "user", "create", name, "--organization", name, "--role", "owner")
    with newcomer(chromium, running) as owner:
        page = owner.go("")
        owner.log_in(name, made.split()[-1])
        assert len(_steps(page)) == 3  # only administrators add models
        owner.follow("Create an API key")
        page.get_by_label("Name").fill("first")
        owner.press("Create")
        owner.go("console/")
        assert "done" in _steps(page)[0]

        owner.follow("Set a limit")
        page.get_by_label("Amount").fill("1000")
        owner.press("Set the limit")
        owner.wait_for_message("The limit is set.")
        owner.go("console/")
        assert "done" in _steps(page)[2]
        _ask_in_the_playground(owner)

        # The usage is written a moment after the answer.
        until(lambda: owner.go("console/").locator(".steps").count() == 0)
        assert owner.fits()


def test_a_member_is_invited_and_gets_an_answer(admin: Administrator, chromium: Browser) -> None:
    page = admin.go("console/members/")
    admin.follow("Invite a colleague")
    name = f"mate{token_hex(3)}"
    page.get_by_label("User name").fill(name)
    page.get_by_label("Where").select_option(label="Project default")
    page.get_by_label("With a first API key").check()
    admin.press("Invite")
    link = page.locator("#secret").inner_text().strip()
    assert page.locator("#key").inner_text().startswith("vny_")
    admin.go("console/invitations/")
    assert page.get_by_role("row").filter(has_text=name).is_visible()

    with newcomer(chromium, admin.platform) as mate:
        mate.page.goto(link)
        for field in mate.page.locator("input[type=password]").all():
            field.fill("a long password of a mate")
        follow(mate.page.get_by_role("button", name="Set the password"))
        assert mate.page.url.endswith("/console/")
        _ask_in_the_playground(mate)

        mate.go("console/members/")
        assert mate.page.get_by_role("row").filter(has_text=name).is_visible()

    admin.go("console/invitations/")
    assert page.get_by_role("row").filter(has_text=name).count() == 0
