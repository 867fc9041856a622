"""What an administrator does in the admin of a running platform, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright import sync_api

from tests.browser.conftest import Administrator, ask, follow
from tests.conftest import REPOSITORY, Running, until
from vinery_serving.engine.option_parsing import option_documents

pytestmark = pytest.mark.system

MODELS = "serving/servedmodel/"
KEYS = "accounts/apikey/"
USAGE = "accounts/usagerecord/"
TINY_CHAT = str(REPOSITORY / "models" / "tiny-chat")

PAGES = ("", MODELS, f"{MODELS}add/", KEYS, f"{KEYS}add/", USAGE, "accounts/user/", "auth/group/")


# -- Coming in


def test_the_start_page_leads_to_the_login_and_on_to_the_console(stranger: Administrator) -> None:
    stranger.page.goto(stranger.platform.base_url)
    assert stranger.page.url.endswith("/accounts/login/")

    stranger.log_in()

    assert stranger.page.url == f"{stranger.platform.base_url}/console/"
    assert stranger.page.title() == "Overview | Vinery"
    follow(stranger.page.get_by_role("link", name="Administration"))
    assert stranger.page.title() == "Administration | Vinery"


def test_the_first_page_names_what_there_is_in_the_order_of_its_use(admin: Administrator) -> None:
    admin.visit("")

    captions = admin.page.locator("#content-main caption").all_inner_texts()
    rows = admin.page.locator("#content-main th[scope=row]").all_inner_texts()
    assert [caption.lower() for caption in captions[:2]] == ["serving", "accounts"]
    assert rows == [
        *("Served models", "Model aliases"),
        *("Usage records", "Refused requests", "Quarantined requests"),
        *(
            "API keys",
            "Limits",
            "Token weights",
            "Users",
            "Memberships",
            "Organisations",
            "Projects",
        ),
        *("Alerts", "Key reminders", "Webhooks", "Audit entries", "Captures"),
        *("Media rules", "Media folders", "Numbers of media", "Refused media", "Groups"),
    ]


def test_no_page_is_wider_than_a_small_screen(admin: Administrator) -> None:
    """Not even with a long name that a client sends. Errors of scripts and missing files are
    looked for after each test."""
    long = f"model-{'m' * 120}"
    assert ask(admin.platform, model=long).status_code == 404
    until(lambda: is_listed(admin, long))
    for path in PAGES:
        admin.visit(path)
        assert not _overflows(admin.page), path

    admin.page.emulate_media(color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert admin.page.evaluate(background) == "rgb(18, 18, 18)"


LISTS = (MODELS, KEYS, USAGE, "accounts/user/", "accounts/limit/", "accounts/auditentry/")


@pytest.mark.parametrize("menu", ["open", "closed"])
def test_a_list_has_all_of_a_phone_for_itself(admin: Administrator, menu: str) -> None:
    is_open = "true" if menu == "open" else "false"
    admin.page.add_init_script(f"localStorage['django.admin.navSidebarIsOpen'] = '{is_open}'")
    for path in LISTS:
        admin.page.set_viewport_size({"width": 1280, "height": 800})
        admin.visit(path)
        sidebar = admin.page.locator("#nav-sidebar")
        assert sidebar.is_visible() == (menu == "open"), path

        admin.page.set_viewport_size({"width": 375, "height": 740})
        assert not sidebar.is_visible(), path
        content = admin.page.locator("#main > .content").bounding_box()
        assert content is not None
        assert content["width"] == 375, path
        changelist = admin.page.locator("#changelist-form").bounding_box()
        assert changelist is not None
        assert changelist["width"] > 300, path


def _overflows(page: sync_api.Page) -> bool:
    return bool(
        page.evaluate(
            """() => [document.documentElement, ...document.querySelectorAll('.results')]
                .some(each => each.scrollWidth > each.clientWidth)"""
        )
    )


def is_listed(admin: Administrator, model: str) -> bool:
    admin.visit(USAGE)
    return admin.page.locator("#result_list .field-model").get_by_text(model).count() > 0


# -- Keys


def test_a_new_key_is_shown_once_and_works_until_it_is_revoked(admin: Administrator) -> None:
    admin.visit(f"{KEYS}add/")
    admin.page.get_by_label("Name:").fill("browser")
    admin.save()

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


def _see_state(admin: Administrator, name: str, state: str) -> None:
    """Reload the list until it shows the text."""

    def is_shown() -> bool:
        admin.visit(MODELS)
        return admin.row(name).locator(".field-state").inner_text().strip() == state

    until(is_shown)


def test_the_reference_model_is_ready_in_its_folder(admin: Administrator) -> None:
    _see_state(admin, "tiny-chat", "Ready")

    assert TINY_CHAT in admin.row("tiny-chat").inner_text()


def test_a_model_is_unloaded_and_loaded_again(admin: Administrator, loaded_again: None) -> None:
    admin.visit(MODELS)
    admin.act_on("tiny-chat", "Unload selected models")
    assert "Unloading tiny-chat." in admin.messages()
    _see_state(admin, "tiny-chat", "Unloaded")
    assert ask(admin.platform).status_code != 200

    admin.act_on("tiny-chat", "Load selected models")
    assert "Loading tiny-chat." in admin.messages()
    _see_state(admin, "tiny-chat", "Ready")
    until(lambda: ask(admin.platform).status_code == 200)


def _fill_model(admin: Administrator, name: str, folder: str, options: str = "{}") -> None:
    admin.visit(f"{MODELS}add/")
    admin.page.get_by_label("Name:").fill(name)
    admin.page.get_by_label("Folder:").fill(folder)
    admin.page.get_by_label("Options:").fill(options)


def test_a_wrong_folder_and_wrong_options_are_reported_at_their_fields(
    admin: Administrator,
) -> None:
    _fill_model(admin, "wrong", "/nowhere", '{"max_runing": 3}')
    admin.save()

    assert admin.error_at("folder") == "There is no folder /nowhere."
    assert admin.error_at("options") == ("There is no option max_runing. Did you mean max_running?")


def test_every_option_is_explained_beside_its_field(admin: Administrator) -> None:
    admin.visit(f"{MODELS}add/")
    admin.page.get_by_text("All options").click()

    rows = admin.page.locator("details.options tbody tr").all_inner_texts()
    assert [tuple(row.split("\t")) for row in rows] == [
        (document.name, document.default or "-", document.meaning)
        for document in option_documents()
    ]


@pytest.fixture
def broken_folder(tmp_path: Path) -> Path:
    """Looks like a model, but its graph is none."""
    for file in Path(TINY_CHAT).iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "openvino_model.xml").unlink()
    (tmp_path / "openvino_model.xml").write_text("no graph")
    return tmp_path


@pytest.fixture
def served_broken(admin: Administrator, broken_folder: Path) -> Iterator[None]:
    """That folder, served as `broken`; afterwards it is removed, by the admin too."""
    _fill_model(admin, "broken", str(broken_folder), "")
    admin.save()
    yield
    admin.visit(MODELS)
    admin.act_on("broken", "Delete selected served models")
    follow(admin.page.get_by_role("button", name="Yes, I"))
    admin.page.get_by_text("Successfully deleted 1 served model.").wait_for()


def test_a_model_that_cannot_be_loaded_shows_the_reason(
    admin: Administrator, served_broken: None, broken_folder: Path
) -> None:
    assert "Loading broken: its state is in this list" in admin.messages()

    def has_failed() -> bool:
        admin.visit(MODELS)
        # It is tried again and again: in between it is loading.
        return "is not an OpenVINO graph" in _last_error(admin)

    until(has_failed)


def _last_error(admin: Administrator) -> str:
    follow(admin.row("broken").get_by_role("link"))
    return admin.page.locator(".field-last_error .readonly").inner_text()


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
