"""What people do in the console of a running platform, in a real browser, at a desk and on a
phone."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright import sync_api

from tests.browser.conftest import Administrator, ask, follow
from tests.conftest import until

pytestmark = pytest.mark.system

PAGES = (
    "",
    "usage/",
    "usage/?by=user&period=7d",
    "keys/",
    "keys/?search=nothing&state=paused",
    "keys/new/",
    "limits/",
    "limits/new/",
    "refusals/",
    "quarantine/",
    "members/",
    "members/new/",
    "members/invite/",
    "projects/",
    "projects/new/",
    "media/",
    "media/rules/new/",
    "media/folders/new/",
    "media/limits/new/",
    "media/test/",
    "webhooks/",
    "webhooks/new/",
    "alerts/",
    "audit/",
)


def _go(admin: Administrator, path: str = "") -> sync_api.Page:
    admin.page.goto(f"{admin.platform.base_url}/console/{path}")
    return admin.page


def test_a_sign_in_leads_to_the_overview_with_the_figures_of_what_was_asked(
    stranger: Administrator,
) -> None:
    ask(stranger.platform)
    page = _go(stranger)
    page.get_by_label("Username").fill(stranger.platform.admin_user)
    page.get_by_label("Password").fill(stranger.platform.admin_password)
    follow(page.get_by_role("button", name="Log in"))
    page.wait_for_url("**/console/")

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


def test_a_key_is_made_copied_once_used_and_revoked(admin: Administrator) -> None:
    admin.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = _go(admin, "keys/")
    follow(page.get_by_role("link", name="Create API key"))
    page.get_by_label("Name").fill("from the console")
    follow(page.get_by_role("button", name="Create"))
    secret = page.locator("#secret").inner_text()
    assert secret in page.locator("#curl").inner_text()
    page.get_by_role("button", name="Copy the key").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == secret
    until(lambda: _status(admin, secret) == 200)

    follow(page.get_by_role("link", name="Done"))
    assert secret not in page.content()
    row = page.get_by_role("row").filter(has_text="from the console")
    assert "active" in row.inner_text()
    follow(row.get_by_role("link", name="Revoke"))
    follow(page.get_by_role("button", name="Revoke for good"))

    page.get_by_role("status").get_by_text("from the console is revoked.").wait_for()
    assert "revoked" in row.inner_text()
    until(lambda: _status(admin, secret) == 401)


def _status(admin: Administrator, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{admin.platform.base_url}/v1/models", headers=headers).status_code


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_key_is_searched_for_and_stopped_on_a_phone_without_scripts(
    admin: Administrator, scheme: str
) -> None:
    browser = admin.page.context.browser
    assert browser is not None
    context = browser.new_context(
        viewport={"width": 360, "height": 740},
        color_scheme=scheme,  # type: ignore[arg-type]
        java_script_enabled=False,
    )
    context.add_cookies(admin.page.context.cookies())  # type: ignore[arg-type]
    phone = Administrator(context.new_page(), admin.platform)
    page = _go(phone, "keys/new/")
    page.get_by_label("Name").fill(f"phone in the {scheme}")
    follow(page.get_by_role("button", name="Create"))

    page = _go(phone, "keys/")
    page.get_by_label("Search").fill(f"THE {scheme}")
    page.get_by_label("State").select_option("active")
    follow(page.get_by_role("button", name="Search"))
    rows = page.get_by_role("row").filter(has=page.get_by_role("rowheader"))
    assert rows.count() == 1
    assert _fits(page)
    follow(rows.get_by_role("link", name="Revoke"))
    follow(page.get_by_role("button", name="Revoke for good"))

    page.get_by_role("status").get_by_text("is revoked.").wait_for()
    assert page.get_by_text("No key matches.").is_visible()
    assert page.get_by_label("Search").input_value() == f"THE {scheme}"
    assert _fits(page)
    follow(page.get_by_role("link", name="see all keys"))
    assert rows.filter(has_text=f"phone in the {scheme}").count() == 1
    context.close()
    assert phone.complaints == []


def test_limits_are_read_from_the_limiter_of_the_running_server(admin: Administrator) -> None:
    admin.visit("accounts/limit/add/")
    admin.page.get_by_label("Scope:").select_option("platform")
    admin.page.get_by_label("Metric:").select_option("requests")
    admin.page.get_by_label("Window:").select_option("month")
    admin.page.get_by_label("Amount:").fill("123456")
    admin.save()

    def is_counted() -> bool:
        ask(admin.platform)
        row = _go(admin, "limits/").get_by_role("row").filter(has_text="123,456")
        cell = row.locator("[data-name=Used]")
        return cell.count() == 1 and cell.inner_text() not in ("0", "unknown")

    until(is_counted)
    meter = admin.page.get_by_role("meter").first
    assert meter.get_attribute("max") == "123456"

    admin.page.set_viewport_size({"width": 360, "height": 740})

    def is_on_the_overview() -> bool:
        row = _go(admin).get_by_role("row").filter(has_text="requests per month")
        return row.filter(has_text="The whole platform").locator("meter").count() == 1

    until(is_on_the_overview)
    assert _fits(admin.page)
    follow(admin.page.get_by_role("link", name="All limits"))
    admin.page.wait_for_url("**/console/limits/")


@pytest.mark.parametrize("width", [360, 1280])
def test_a_limit_is_set_changed_and_removed_by_hand(admin: Administrator, width: int) -> None:
    admin.page.set_viewport_size({"width": width, "height": 740})
    page = _go(admin, "limits/")
    follow(page.get_by_role("link", name="Set a limit"))
    page.get_by_label("Applies to").select_option(label="A model")
    page.get_by_label("Limit").select_option("tokens")
    page.get_by_label("Window").select_option("week")
    page.get_by_label("Weeks begin on").select_option("Sunday")
    page.get_by_label("Amount").fill("4242")
    follow(page.get_by_role("button", name="Set the limit"))
    error = page.locator(".field-model .errorlist")
    assert "Name the model" in error.inner_text()
    assert page.get_by_label("Amount").input_value() == "4242"
    assert _fits(page)
    page.get_by_label("Model:").fill("not-loaded")
    follow(page.get_by_role("button", name="Set the limit"))
    page.get_by_role("status").get_by_text("The limit is set.").wait_for()

    row = page.get_by_role("row").filter(has_text="The model not-loaded")
    assert "Sunday 00:00 UTC" in row.inner_text()
    follow(row.get_by_role("link", name="Change"))
    assert _fits(page)
    page.get_by_label("Amount").fill("5555")
    follow(page.get_by_role("button", name="Save"))
    page.get_by_role("status").get_by_text("The limit is changed.").wait_for()
    assert "5,555" in row.inner_text()

    follow(row.get_by_role("link", name="Change"))
    follow(page.get_by_role("link", name="Remove"))
    assert _fits(page)
    follow(page.get_by_role("button", name="Remove"))
    page.get_by_role("status").get_by_text("The limit is removed.").wait_for()
    assert row.count() == 0


def test_a_page_that_is_not_there_looks_like_the_others(admin: Administrator) -> None:
    admin.page.set_viewport_size({"width": 360, "height": 740})
    page = _go(admin, "nothing/")
    assert page.get_by_role("heading", name="There is no such page").is_visible()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(246, 246, 248)"
    assert _fits(page)
    # The browser logs the status, too.
    found = [message for message in admin.complaints if "404" in message]
    assert found == admin.complaints
    admin.complaints.clear()

    follow(page.get_by_role("link", name="To the overview"))
    page.wait_for_url("**/console/")


def _fits(page: sync_api.Page) -> bool:
    """Whether nothing has to be scrolled sideways."""
    page.wait_for_load_state()  # a page that has just been left has no document
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    )


def test_the_period_and_what_is_grouped_by_are_chosen_by_hand(admin: Administrator) -> None:
    ask(admin.platform)
    page = _go(admin, "usage/")
    follow(page.get_by_role("link", name="By key", exact=True))
    page.get_by_label("Period").select_option("7d")
    follow(page.get_by_role("button", name="Apply"))

    row = page.get_by_role("row").filter(has_text="first key")
    assert int(row.locator("[data-name=Requests]").inner_text().replace(",", "")) >= 1
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all requests").click()
    assert download.value.suggested_filename == "usage.csv"
    assert download.value.path().read_text().startswith("request_id,")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_on_a_phone(admin: Administrator, scheme: str) -> None:
    """Errors of scripts, of the content security policy and missing files are looked for after
    each test."""
    admin.page.set_viewport_size({"width": 360, "height": 740})
    admin.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    ask(admin.platform)
    for path in PAGES:
        page = _go(admin, path)
        assert _fits(page), path
    ground = "getComputedStyle(document.body).backgroundColor"
    expected = {"light": "rgb(246, 246, 248)", "dark": "rgb(19, 19, 24)"}
    assert admin.page.evaluate(ground) == expected[scheme]


def test_console_and_admin_lead_to_each_other(admin: Administrator) -> None:
    page = _go(admin)
    follow(page.get_by_role("link", name="Administration"))
    assert page.url.endswith("/admin/")
    follow(page.get_by_role("link", name="Console"))
    assert page.url.endswith("/console/")


# -- The owner of an organisation


def test_an_owner_adds_a_member_a_project_a_key_and_a_webhook_and_reads_the_log(
    admin: Administrator,
) -> None:
    name = "browser-member"
    _add_admin(admin, name)
    secret = _add_project_with_a_key(admin, owner=name)
    until(lambda: ask(admin.platform, secret).status_code == 200)
    _add_and_remove_a_webhook(admin)

    page = _go(admin, "audit/")
    page.get_by_label("Action").fill("membership.update")
    follow(page.get_by_role("button", name="Search"))
    entry = page.get_by_role("row").filter(has_text=f"{name} is admin")
    entry.get_by_text("1 value").click()
    assert "member → admin" in entry.inner_text()


def _add_admin(admin: Administrator, name: str) -> None:
    """Create a user, who sets a password and signs in, and give another role."""
    page = _go(admin, "members/")
    follow(page.get_by_role("link", name="Create a user"))
    page.get_by_label("User name").fill(name)
    page.get_by_label("Where").select_option(label="All of default")
    follow(page.get_by_role("button", name="Create"))
    link = page.locator("#link").inner_text()
    _set_password(admin, link, name, "a long password of a member")
    follow(page.get_by_role("link", name="Done"))

    row = page.get_by_role("row").filter(has_text=name)
    assert "member" in row.inner_text()
    follow(row.get_by_role("link", name="Manage"))
    page.get_by_label("Role").select_option("admin")
    follow(page.get_by_role("button", name="Change the role"))
    page.get_by_role("status").get_by_text(f"{name} is admin of default.").wait_for()


def _add_project_with_a_key(admin: Administrator, *, owner: str) -> str:
    """Return the secret of the key."""
    page = _go(admin, "projects/")
    follow(page.get_by_role("link", name="Create a project"))
    page.get_by_label("Name").fill("browser project")
    organization = page.locator("select[name=organization]")  # other tests may have added some
    if organization.count():
        organization.select_option(label="default")
    follow(page.get_by_role("button", name="Create"))
    page.get_by_role("status").get_by_text("is created").wait_for()

    _go(admin, "keys/new/")
    page.get_by_label("Name").fill("of the member")
    page.get_by_label("Owner").fill(owner)
    page.get_by_label("Project").select_option(label="default / browser project")
    follow(page.get_by_role("button", name="Create"))
    return page.locator("#secret").inner_text()


def _add_and_remove_a_webhook(admin: Administrator) -> None:
    page = _go(admin, "webhooks/new/")
    page.get_by_label("Name").fill("browser pager")
    page.get_by_label("URL").fill("https://hooks.invalid/vinery")
    follow(page.get_by_role("button", name="Create"))
    assert page.locator("#secret").inner_text().startswith("whsec_")
    follow(page.get_by_role("link", name="Done"))
    follow(page.get_by_role("button", name="Send a test"))
    page.get_by_role("status").get_by_text("The test was not delivered.").wait_for()
    follow(page.get_by_role("link", name="Remove the webhook"))
    follow(page.get_by_role("button", name="Remove"))


def _set_password(admin: Administrator, link: str, name: str, password: str) -> None:
    """Open the link in a browser of its own, as the new user does, and sign in."""
    browser = admin.page.context.browser
    assert browser is not None
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    for field in page.locator("input[type=password]").all():
        field.fill(password)
    follow(page.get_by_role("button", name="Set the password"))
    page.goto(f"{admin.platform.base_url}/accounts/login/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    follow(page.get_by_role("button", name="Log in"))
    page.wait_for_url("**/console/")
    context.close()


def test_the_menu_of_a_phone_opens_without_a_script(admin: Administrator) -> None:
    admin.page.set_viewport_size({"width": 390, "height": 740})
    page = _go(admin)
    menu = page.get_by_role("navigation", name="Pages")
    assert not menu.is_visible()
    page.get_by_role("button", name="Menu").click()
    assert menu.is_visible()
    assert _fits(page)

    follow(menu.get_by_role("link", name="Audit log"))

    assert page.url.endswith("/console/audit/")
    assert not menu.is_visible()
