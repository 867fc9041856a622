"""The work of people in the console of a running platform, in a real browser, at a desk and on a
phone."""

import re

from playwright import sync_api

from tests.browser.conftest import PHONE, Administrator, ask, follow
from tests.conftest import until
from tests.system.clients import http_of


def _go(admin: Administrator, path: str = "") -> sync_api.Page:
    return admin.go(f"console/{path}")


def test_a_sign_in_leads_to_the_overview_with_its_figures(stranger: Administrator) -> None:
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
    _read_and_open_a_bar(page)
    _see_a_single_value_on_a_phone(stranger)
    stranger.go("console/")

    stranger.follow("Administration")
    assert page.title() == "Administration | Vinery"
    stranger.follow("Console")
    assert page.url.endswith("/console/")


_NUM_COLOURED = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const spread = (rgb) => Math.max(...rgb) - Math.min(...rgb);
  const starts = Array.from({ length: data.length / 4 }, (_, at) => 4 * at);
  return starts.filter((at) => spread(data.slice(at, at + 3)) > 60).length;
}"""


def _see_a_single_value_on_a_phone(person: Administrator) -> None:
    """No line can be seen of the only day with requests, and dots of all days are too dense."""
    usual = person.page.viewport_size
    person.page.set_viewport_size(PHONE)
    page = person.go("console/?period=30d")
    chart = page.get_by_role("slider", name=re.compile("^Latency of answers: "))
    until(lambda: chart.locator("canvas").evaluate(_NUM_COLOURED) > 0)
    assert usual is not None
    page.set_viewport_size(usual)


def _read_and_open_a_bar(page: sync_api.Page) -> None:
    chart = page.get_by_role("slider", name=re.compile("^Requests: "))
    chart.locator(".u-over").hover()
    readout = chart.locator(".readout")
    readout.get_by_text("answered: ").wait_for()

    chart.focus()
    page.keyboard.press("Home")
    first = chart.get_attribute("aria-valuetext")
    page.keyboard.press("End")
    value = chart.get_attribute("aria-valuetext") or ""
    assert value != first
    if "answered: 0" in value:  # an hour has just begun
        page.keyboard.press("ArrowLeft")
        value = chart.get_attribute("aria-valuetext") or ""
    assert re.search(r"answered: [1-9]", value)
    # The colour comes from the style sheet: the policy has let it in.
    mark = readout.locator("li").first
    assert mark.evaluate("each => getComputedStyle(each).color") == "rgb(91, 111, 216)"

    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "since=" in page.url
    assert page.locator("#requests .number").inner_text() != "0"
    page.go_back()
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    with page.expect_navigation():
        page.mouse.click(box["x"] + box["width"] - 4, box["y"] + 20)
    assert "until=" in page.url


def test_the_palette_leads_on_by_keyboard_alone_and_the_switch_narrows(
    admin: Administrator,
) -> None:
    page = _go(admin)
    page.keyboard.press("Control+k")
    page.keyboard.type("audit")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.url.endswith("/console/audit/")
    page.keyboard.press("/")
    palette = page.get_by_role("dialog")
    palette.wait_for()
    page.keyboard.press("Escape")
    palette.wait_for(state="hidden")

    admin.focus(page.locator("a.scope"))
    page.keyboard.press("Enter")
    page.locator("#found button").first.wait_for()
    page.keyboard.press("ArrowDown")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.get_by_text("Only default").wait_for()
    admin.press("Show all")
    assert page.url.endswith("/console/audit/")
    assert page.locator(".only").count() == 0


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
    row.get_by_text("Actions").click()
    follow(row.get_by_role("link", name="Revoke"))
    admin.press("Revoke")

    admin.wait_for_message("is revoked.")
    assert "revoked" in row.inner_text()
    until(lambda: _status(admin, secret) == 401)


def _status(admin: Administrator, key: str) -> int:
    with http_of(admin.platform, key) as client:
        return client.get("/v1/models").status_code


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
    row = admin.page.get_by_role("row").filter(has_text="123,456")
    meter = row.get_by_role("meter")
    assert meter.get_attribute("max") == "100"

    admin.page.set_viewport_size(PHONE)

    def is_on_the_overview() -> bool:
        row = _go(admin).get_by_role("row").filter(has_text="requests per month")
        return row.filter(has_text="The whole platform").locator("meter").count() == 1

    until(is_on_the_overview)
    assert admin.fits()
    admin.follow("All limits")
    admin.page.wait_for_url("**/console/limits/")


def test_a_missing_page_fits_a_phone_whose_menu_needs_no_script(admin: Administrator) -> None:
    admin.page.set_viewport_size(PHONE)
    page = _go(admin, "nothing/")
    assert page.get_by_role("heading", name="There is no such page").is_visible()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(246, 245, 248)"
    assert admin.fits()
    # The browser logs the status, too.
    found = [message for message in admin.complaints if "404" in message]
    assert found == admin.complaints
    admin.complaints.clear()

    admin.follow("To the overview")
    page.wait_for_url("**/console/")

    menu = page.get_by_role("navigation", name="Pages")
    assert not menu.is_visible()
    page.get_by_role("button", name="Menu").click()
    assert menu.is_visible()
    assert admin.fits()

    follow(menu.get_by_role("link", name="Audit log"))

    assert page.url.endswith("/console/audit/")
    assert not menu.is_visible()
