"""What people do in the console of a running platform, in a real browser, at a desk and on a
phone."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright import sync_api

from tests.browser.conftest import PHONE, Administrator, ask, follow, someone_at
from tests.conftest import Running, until

pytestmark = pytest.mark.system


def _go(admin: Administrator, path: str = "") -> sync_api.Page:
    return admin.go(f"console/{path}")


def test_a_sign_in_leads_to_the_overview_with_the_figures_of_what_was_asked(
    stranger: Administrator,
) -> None:
    ask(stranger.platform)
    page = stranger.go("")
    assert page.url.endswith("/accounts/login/")
    stranger.log_in()
    assert page.url == f"{stranger.platform.base_url}/console/"
    assert page.title() == "Overview | Vinery"

    def is_counted() -> bool:
        page.reload()
        return int(page.locator("#requests .number").inner_text().replace(",", "")) >= 1

    until(is_counted)
    assert page.locator("#output .number").inner_text() != "0"
    chart = page.get_by_role("img", name=re.compile("^Requests: "))
    bars = chart.locator(".shapes .colour-1")
    # The last hour may have just begun: beside one with many requests it is a line.
    heights = [box["height"] for bar in bars.all() if (box := bar.bounding_box()) is not None]
    assert max(heights) > 2
    # The colour comes from the style sheet: the policy has let it in.
    assert bars.last.evaluate("bar => getComputedStyle(bar).fill") == "rgb(91, 111, 216)"

    stranger.follow("Administration")
    assert page.title() == "Administration | Vinery"
    stranger.follow("Console")
    assert page.url.endswith("/console/")


def test_a_key_is_made_copied_once_used_and_revoked(admin: Administrator) -> None:
    admin.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = _go(admin, "keys/")
    admin.follow("Create API key")
    page.get_by_label("Name").fill("from the console")
    admin.press("Create")
    secret = page.locator("#secret").inner_text()
    assert secret in page.locator("#curl").inner_text()
    page.get_by_role("button", name="Copy the key").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == secret
    until(lambda: _status(admin, secret) == 200)

    admin.follow("Done")
    assert secret not in page.content()
    row = page.get_by_role("row").filter(has_text="from the console")
    assert "active" in row.inner_text()
    follow(row.get_by_role("link", name="Revoke"))
    admin.press("Revoke for good")

    admin.wait_for_message("from the console is revoked.")
    assert "revoked" in row.inner_text()
    until(lambda: _status(admin, secret) == 401)


def _status(admin: Administrator, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{admin.platform.base_url}/v1/models", headers=headers).status_code


def test_a_key_is_searched_for_and_stopped_on_a_phone_without_scripts(
    chromium: sync_api.Browser, running: Running, session: sync_api.StorageState
) -> None:
    with someone_at(
        chromium, running, storage_state=session, viewport=PHONE, java_script_enabled=False
    ) as phone:
        page = _go(phone, "keys/new/")
        page.get_by_label("Name").fill("of a phone")
        phone.press("Create")

        page = _go(phone, "keys/")
        page.get_by_label("Search").fill("OF A phone")
        page.get_by_label("State").select_option("active")
        phone.press("Search")
        rows = page.get_by_role("row").filter(has=page.get_by_role("rowheader"))
        assert rows.count() == 1
        assert phone.fits()
        follow(rows.get_by_role("link", name="Revoke"))
        phone.press("Revoke for good")

        phone.wait_for_message("is revoked.")
        assert page.get_by_text("No key matches.").is_visible()
        assert page.get_by_label("Search").input_value() == "OF A phone"
        assert phone.fits()
        phone.follow("see all keys")
        assert rows.filter(has_text="of a phone").count() == 1


def test_limits_are_read_from_the_limiter_of_the_running_server(admin: Administrator) -> None:
    admin.visit("accounts/limit/add/")
    admin.page.get_by_label("Scope:").select_option("platform")
    admin.page.get_by_label("Metric:").select_option("requests")
    admin.page.get_by_label("Window:").select_option("month")
    admin.page.get_by_label("Amount:").fill("123456")
    admin.press("Save")

    def is_counted() -> bool:
        ask(admin.platform)
        row = _go(admin, "limits/").get_by_role("row").filter(has_text="123,456")
        cell = row.locator("[data-name=Used]")
        return cell.count() == 1 and cell.inner_text() not in ("0", "unknown")

    until(is_counted)
    meter = admin.page.get_by_role("meter").first
    assert meter.get_attribute("max") == "123456"

    admin.page.set_viewport_size(PHONE)

    def is_on_the_overview() -> bool:
        row = _go(admin).get_by_role("row").filter(has_text="requests per month")
        return row.filter(has_text="The whole platform").locator("meter").count() == 1

    until(is_on_the_overview)
    assert admin.fits()
    admin.follow("All limits")
    admin.page.wait_for_url("**/console/limits/")


def test_a_limit_is_set_changed_and_removed_by_hand(admin: Administrator) -> None:
    page = _go(admin, "limits/")
    admin.follow("Set a limit")
    page.get_by_label("Applies to").select_option(label="A model")
    page.get_by_label("Limit").select_option("tokens")
    page.get_by_label("Window").select_option("week")
    page.get_by_label("Weeks begin on").select_option("Sunday")
    page.get_by_label("Amount").fill("4242")
    admin.press("Set the limit")
    error = page.locator(".field-model .errorlist")
    assert "Name the model" in error.inner_text()
    assert page.get_by_label("Amount").input_value() == "4242"
    assert admin.fits()
    page.get_by_label("Model:").fill("not-loaded")
    admin.press("Set the limit")
    admin.wait_for_message("The limit is set.")

    row = page.get_by_role("row").filter(has_text="The model not-loaded")
    assert "Sunday 00:00 UTC" in row.inner_text()
    follow(row.get_by_role("link", name="Change"))
    assert admin.fits()
    page.get_by_label("Amount").fill("5555")
    admin.press("Save")
    admin.wait_for_message("The limit is changed.")
    assert "5,555" in row.inner_text()

    follow(row.get_by_role("link", name="Change"))
    admin.follow("Remove")
    assert admin.fits()
    admin.press("Remove")
    admin.wait_for_message("The limit is removed.")
    assert row.count() == 0


def test_a_page_that_is_not_there_looks_like_the_others(admin: Administrator) -> None:
    admin.page.set_viewport_size(PHONE)
    page = _go(admin, "nothing/")
    assert page.get_by_role("heading", name="There is no such page").is_visible()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(246, 246, 248)"
    assert admin.fits()
    # The browser logs the status, too.
    found = [message for message in admin.complaints if "404" in message]
    assert found == admin.complaints
    admin.complaints.clear()

    admin.follow("To the overview")
    page.wait_for_url("**/console/")


def test_the_period_and_what_is_grouped_by_are_chosen_by_hand(admin: Administrator) -> None:
    ask(admin.platform)
    page = _go(admin, "usage/")
    admin.follow("By key")
    page.get_by_label("Period").select_option("7d")
    admin.press("Apply")

    row = page.get_by_role("row").filter(has_text="first key")

    def is_counted() -> bool:
        page.reload()
        numbers = row.locator("[data-name=Requests]").all_inner_texts()
        return [int(number.replace(",", "")) >= 1 for number in numbers] == [True]

    until(is_counted)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all requests").click()
    assert download.value.suggested_filename == "usage.csv"
    assert download.value.path().read_text().startswith("request_id,")


# -- The owner of an organisation


def test_an_owner_adds_a_member_a_project_a_key_and_a_webhook_and_reads_the_log(
    chromium: sync_api.Browser, admin: Administrator
) -> None:
    name = "browser-member"
    _add_admin(chromium, admin, name)
    secret = _add_project_with_a_key(admin, owner=name)
    until(lambda: ask(admin.platform, secret).status_code == 200)
    _add_and_remove_a_webhook(admin)

    page = _go(admin, "audit/")
    page.get_by_label("Action").fill("membership.update")
    admin.press("Search")
    entry = page.get_by_role("row").filter(has_text=f"{name} is admin")
    entry.get_by_text("1 value").click()
    assert "member → admin" in entry.inner_text()


def _add_admin(chromium: sync_api.Browser, admin: Administrator, name: str) -> None:
    """Create a user, who sets a password and signs in, and give another role."""
    page = _go(admin, "members/")
    admin.follow("Create a user")
    page.get_by_label("User name").fill(name)
    page.get_by_label("Where").select_option(label="All of default")
    admin.press("Create")
    link = page.locator("#link").inner_text()
    with someone_at(chromium, admin.platform) as member:
        member.page.goto(link)
        for field in member.page.locator("input[type=password]").all():
            field.fill("a long password of a member")
        member.press("Set the password")
        member.go("accounts/login/")
        member.log_in(name, "a long password of a member")
        assert member.page.url.endswith("/console/")
    follow(page.get_by_role("link", name="Done"))

    row = page.get_by_role("row").filter(has_text=name)
    assert "member" in row.inner_text()
    follow(row.get_by_role("link", name="Manage"))
    page.get_by_label("Role").select_option("admin")
    admin.press("Change the role")
    admin.wait_for_message(f"{name} is admin of default.")


def _add_project_with_a_key(admin: Administrator, *, owner: str) -> str:
    """Return the secret of the key."""
    page = _go(admin, "projects/")
    admin.follow("Create a project")
    page.get_by_label("Name").fill("browser project")
    organization = page.locator("select[name=organization]")  # other tests may have added some
    if organization.count():
        organization.select_option(label="default")
    admin.press("Create")
    admin.wait_for_message("is created")

    _go(admin, "keys/new/")
    page.get_by_label("Name").fill("of the member")
    page.get_by_label("Owner").fill(owner)
    page.get_by_label("Project").select_option(label="default / browser project")
    admin.press("Create")
    return page.locator("#secret").inner_text()


def _add_and_remove_a_webhook(admin: Administrator) -> None:
    page = _go(admin, "webhooks/new/")
    page.get_by_label("Name").fill("browser pager")
    page.get_by_label("URL").fill("https://hooks.invalid/vinery")
    admin.press("Create")
    assert page.locator("#secret").inner_text().startswith("whsec_")
    follow(page.get_by_role("link", name="Done"))
    admin.press("Send a test")
    admin.wait_for_message("The test was not delivered.")
    admin.follow("Remove the webhook")
    admin.press("Remove")


def test_the_menu_of_a_phone_opens_without_a_script(admin: Administrator) -> None:
    admin.page.set_viewport_size(PHONE)
    page = _go(admin)
    menu = page.get_by_role("navigation", name="Pages")
    assert not menu.is_visible()
    page.get_by_role("button", name="Menu").click()
    assert menu.is_visible()
    assert admin.fits()

    follow(menu.get_by_role("link", name="Audit log"))

    assert page.url.endswith("/console/audit/")
    assert not menu.is_visible()
