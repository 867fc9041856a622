"""What an administrator does in the admin of a running platform, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from playwright import sync_api

from tests.browser.conftest import PHONE, TINY_CHAT, Administrator, ask, follow
from tests.conftest import Running, until
from vinery_serving.engine.option_parsing import option_documents

pytestmark = pytest.mark.system

MODELS = "serving/servedmodel/"
KEYS = "accounts/apikey/"
USAGE = "accounts/usagerecord/"
LISTS = (MODELS, KEYS, USAGE, "accounts/user/", "accounts/limit/", "accounts/auditentry/")


# -- Coming in


def test_the_first_page_names_what_there_is_in_the_order_of_its_use(admin: Administrator) -> None:
    admin.visit("")

    captions = admin.page.locator("#content-main caption").all_inner_texts()
    rows = admin.page.locator("#content-main th[scope=row]").all_inner_texts()
    assert [caption.lower() for caption in captions[:2]] == ["serving", "accounts"]
    assert rows == [
        *("Served models", "Model aliases"),
        *("Usage records", "Refused requests", "Quarantined requests"),
        *("API keys", "Limits", "Token weights"),
        *("Users", "Memberships", "Organisations", "Projects"),
        *("Alerts", "Key reminders", "Webhooks", "Audit entries", "Captures"),
        *("Media rules", "Media folders", "Numbers of media", "Refused media", "Groups"),
    ]


@pytest.mark.parametrize(("is_open", "lists"), [("true", LISTS), ("false", LISTS[:1])])
def test_a_list_has_all_of_a_phone_for_itself(
    admin: Administrator, is_open: str, lists: Sequence[str]
) -> None:
    """Whether the menu beside it is open at a desk or not."""
    admin.page.add_init_script(f"localStorage['django.admin.navSidebarIsOpen'] = '{is_open}'")
    admin.visit(MODELS)
    sidebar = admin.page.locator("#nav-sidebar")
    assert sidebar.is_visible() == (is_open == "true")

    admin.page.set_viewport_size(PHONE)
    for path in lists:
        admin.visit(path)
        assert not sidebar.is_visible(), path
        assert _width(admin.page, "#main > .content") == PHONE["width"], path
        assert _width(admin.page, "#changelist-form") > 300, path


def _width(page: sync_api.Page, selector: str) -> float:
    box = page.locator(selector).bounding_box()
    return box["width"] if box else 0.0


# -- Keys


def test_a_new_key_is_shown_once_and_works_until_it_is_revoked(admin: Administrator) -> None:
    admin.visit(f"{KEYS}add/")
    admin.page.get_by_label("Name:").fill("browser")
    admin.press("Save")

    secret = admin.page.locator("ul.messagelist code").inner_text()
    assert re.fullmatch(r"vny_live_\w+", secret)
    until(lambda: _status_of_models(admin.platform, secret) == 200)

    admin.page.reload()
    assert secret not in admin.page.content()
    assert "Active" in admin.row("browser").inner_text()

    admin.act_on("browser", "Revoke selected keys")
    assert "1 of the selected keys revoked." in admin.messages()
    assert "Revoked" in admin.row("browser").inner_text()
    until(lambda: _status_of_models(admin.platform, secret) == 401)


def _status_of_models(platform: Running, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{platform.base_url}/v1/models", headers=headers).status_code


# -- Models


def test_a_model_is_unloaded_and_loaded_again(admin: Administrator) -> None:
    _see_state(admin, "Ready")
    assert str(TINY_CHAT) in admin.row("tiny-chat").inner_text()

    try:
        admin.act_on("tiny-chat", "Unload selected models")
        assert "Unloading tiny-chat." in admin.messages()
        _see_state(admin, "Unloaded")
        assert ask(admin.platform).status_code != 200
    finally:
        admin.act_on("tiny-chat", "Load selected models")
    assert "Loading tiny-chat." in admin.messages()
    until(lambda: ask(admin.platform).status_code == 200, timeout_s=120)
    _see_state(admin, "Ready")


def _see_state(admin: Administrator, state: str) -> None:
    """Reload the list until it shows this state of tiny-chat."""

    def is_shown() -> bool:
        admin.visit(MODELS)
        return admin.row("tiny-chat").locator(".field-state").inner_text().strip() == state

    until(is_shown, timeout_s=120)


def _fill_model(admin: Administrator, name: str, folder: str, options: str) -> None:
    admin.visit(f"{MODELS}add/")
    admin.page.get_by_label("Name:").fill(name)
    admin.page.get_by_label("Folder:").fill(folder)
    admin.page.get_by_label("Options:").fill(options)


def test_the_form_of_a_model_explains_every_option_and_reports_errors_at_their_fields(
    admin: Administrator,
) -> None:
    _fill_model(admin, "wrong", "/nowhere", '{"max_runing": 3}')
    admin.page.get_by_text("All options").click()
    rows = admin.page.locator("details.options tbody tr").all_inner_texts()
    assert [tuple(row.split("\t")) for row in rows] == [
        (document.name, document.default or "-", document.meaning)
        for document in option_documents()
    ]

    admin.press("Save")

    assert admin.error_at("folder") == "There is no folder /nowhere."
    assert admin.error_at("options") == ("There is no option max_runing. Did you mean max_running?")


@pytest.fixture
def broken_folder(tmp_path: Path) -> Path:
    """Looks like a model, but its graph is none."""
    for file in TINY_CHAT.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "openvino_model.xml").unlink()
    (tmp_path / "openvino_model.xml").write_text("no graph")
    return tmp_path


def test_a_model_that_cannot_be_loaded_shows_the_reason_until_it_is_deleted(
    admin: Administrator, broken_folder: Path
) -> None:
    _fill_model(admin, "broken", str(broken_folder), "")
    admin.press("Save")
    assert "Loading broken: its state is in this list" in admin.messages()
    follow(admin.row("broken").get_by_role("link"))

    def has_failed() -> bool:
        admin.page.reload()
        # It is tried again and again: in between it is loading.
        error = admin.page.locator(".field-last_error .readonly").inner_text()
        return "is not an OpenVINO graph" in error

    until(has_failed, timeout_s=120)
    admin.visit(MODELS)
    admin.act_on("broken", "Delete selected served models")
    follow(admin.page.get_by_role("button", name="Yes, I"))
    admin.page.get_by_text("Successfully deleted 1 served model.").wait_for()


# -- Usage


def test_a_request_leaves_a_read_only_record(admin: Administrator) -> None:
    response = ask(admin.platform)
    num_tokens = response.json()["usage"]
    rows = admin.page.locator("#result_list tbody tr")

    def is_there() -> bool:
        admin.visit(f"{USAGE}?q={response.headers['x-request-id']}")
        return rows.count() == 1

    until(is_there)

    cells = {
        name: rows.locator(f".field-{name}").inner_text()
        for name in (
            *("caller", "model", "endpoint", "result"),
            *("num_prompt_tokens", "num_output_tokens"),
        )
    }
    assert cells == {
        "caller": f"{admin.platform.admin_user}, first key",
        "model": "tiny-chat",
        "endpoint": "chat/completions",
        "result": "ok 200",
        "num_prompt_tokens": str(num_tokens["prompt_tokens"]),
        "num_output_tokens": str(num_tokens["completion_tokens"]),
    }
    align = "cell => getComputedStyle(cell).textAlign"
    for name in ("num_prompt_tokens", "total_ms"):
        assert rows.locator(f".field-{name}").evaluate(align) == "right"
    assert admin.page.locator(".object-tools .addlink, .actions").count() == 0
    follow(rows.get_by_role("link"))
    admin.page.get_by_role("heading", name="View usage record").wait_for()
    assert admin.page.locator(".submit-row input, .deletelink").count() == 0
    assert admin.page.locator("#content-main").get_by_role("textbox").count() == 0


def test_empty_lists_show_a_message(admin: Administrator) -> None:
    admin.visit(f"{MODELS}?q=nothing-is-called-this")

    assert "Nothing matches" in admin.page.locator(".empty-list").inner_text()
