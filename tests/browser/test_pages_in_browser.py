"""Every page fits on a phone, however long the names that clients and owners choose.

Errors of scripts, of the content security policy and missing files are looked for after each test.
"""

from pathlib import Path

from tests.browser.conftest import FITS, PHONE, Administrator, ask
from tests.conftest import until
from tests.system.clients import vinery

LISTS = (
    *("admin/serving/servedmodel/", "admin/accounts/apikey/", "admin/accounts/user/"),
    "admin/auth/group/",
)
PAGES = (*LISTS, *Path(__file__).with_name("pages.txt").read_text(encoding="utf-8").split())
# Of these, the page of the first row too.
ROWS = tuple(f"console/{name}/" for name in ("keys", "limits", "members", "projects", "media"))
LONG_HOST = f"{'sub-domain.' * 20}example.org"
OPEN_ALL = "document.querySelectorAll('main details').forEach(each => { each.open = true })"
# On a phone, the admin's lists are scrolled by themselves.
LISTS_FIT = """() =>
    [...document.querySelectorAll('.results')].every(each => each.scrollWidth <= each.clientWidth)
"""
GROUND = "getComputedStyle(document.body).backgroundColor"


def test_every_page_fits_on_a_phone(admin: Administrator) -> None:
    long = f"model-{'m' * 120}"
    assert ask(admin.platform, model=long).status_code == 404
    vinery(admin.platform, "media", "allow", LONG_HOST, "--note", "word" * 40)
    limit = ("--metric", "requests", "--window", "day", "--amount", "500000")
    vinery(admin.platform, "limit", "set", "--model", "tiny-chat", *limit)
    try:
        until(lambda: long in admin.go("console/requests/").inner_text("main"))
        wide_lists = {path for path in LISTS if not admin.go(path).evaluate(LISTS_FIT)}
        admin.page.set_viewport_size(PHONE)
        rows = [_first_row(admin, path) for path in ROWS]
        wide_pages = {path for path in (*PAGES, *rows) if not _fits(admin, path)}
    finally:
        vinery(admin.platform, "media", "deny", LONG_HOST, "--remove")

    assert wide_lists == wide_pages == set()


def _first_row(admin: Administrator, path: str) -> str:
    link = admin.go(path).locator(f"main tbody a[href^='/{path}']").first
    return str(link.get_attribute("href")).removeprefix("/")


def _fits(admin: Administrator, path: str) -> bool:
    page = admin.go(path)
    page.evaluate(OPEN_ALL)
    return bool(page.evaluate(FITS))


def test_the_colours_follow_the_scheme(admin: Administrator) -> None:
    for path, *colours in (
        ("console/", "rgb(246, 245, 248)", "rgb(19, 17, 23)"),
        ("admin/", "rgb(255, 255, 255)", "rgb(27, 25, 33)"),
    ):
        page = admin.go(path)
        grounds = []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            grounds.append(page.evaluate(GROUND))
        assert grounds == colours, path
