"""The work of an administrator in the admin of a running platform, in a real browser."""

from tests.browser.conftest import Administrator, ask
from tests.conftest import until

MODELS = "serving/servedmodel/"
USAGE = "accounts/usagerecord/"


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
