"""The work of an administrator in the admin of a running platform, in a real browser."""

from collections.abc import Sequence

import pytest
from playwright import sync_api

from tests.browser.conftest import PHONE, Administrator, ask
from tests.conftest import until

MODELS = "serving/servedmodel/"
KEYS = "accounts/apikey/"
USAGE = "accounts/usagerecord/"
LISTS = (MODELS, KEYS, USAGE, "accounts/user/", "accounts/limit/", "accounts/auditentry/")


def test_the_admin_lists_all_explains_errors_and_aligns_figures(admin: Administrator) -> None:
    admin.visit("")

    rows = admin.page.locator("#content-main th[scope=row]").all_inner_texts()
    assert set(rows) == {
        *("Served models", "Model aliases"),
        *("Usage records", "Refused requests", "Quarantined requests"),
        *("API keys", "Limits", "Token weights", "Currencies"),
        *("Users", "Memberships", "Organisations", "Projects"),
        *("Alerts", "Webhooks", "Audit entries", "Captures"),
        *("Conversations", "Stored chats", "Stored responses"),
        *("Media rules", "Media folders", "Media limits", "Refused media", "Groups"),
    }

    admin.visit(f"{MODELS}add/")
    admin.page.get_by_label("Name:").fill("wrong")
    admin.page.get_by_label("Folder:").fill("/nowhere")
    admin.page.get_by_label("Options:").fill('{"max_runing": 3}')
    admin.press("Save")

    assert admin.error_at("folder") == "There is no folder /nowhere."
    assert admin.error_at("options") == ("There is no option max_runing. Did you mean max_running?")

    request_id = ask(admin.platform).headers["x-request-id"]
    rows = admin.page.locator("#result_list tbody tr")

    def is_there() -> bool:
        admin.visit(f"{USAGE}?q={request_id}")
        return rows.count() == 1

    until(is_there)
    for name in ("num_prompt_tokens", "total_ms"):
        align = "cell => getComputedStyle(cell).textAlign"
        assert rows.locator(f".field-{name}").evaluate(align) == "right"


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
