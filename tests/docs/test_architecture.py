"""ARCHITECTURE.md describes the code: its rooms are import contracts, and its paths exist."""

import ast
import re
import tomllib
from collections import defaultdict
from functools import cache

import grimp

from docs.words import Allowed, retired_words, uses_in
from tests.conftest import REPOSITORY
from tests.tables import table

ARCHITECTURE = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
MAX_CHAIN = 14
WIRING = "platform/vinery_platform"
PACKAGES = ("vinery_platform", "vinery_serving", "vinery_accounts")
UNSAFE = {
    *("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"),
    *("eval()", "exec()", "os.system()", "os.popen()", "shell=True"),
}


def rooms() -> dict[str, set[str]]:
    """The rooms that each room may import, by their paths, from the table."""
    table = ARCHITECTURE.partition("## Rooms")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    found = {}
    for _, name, _, may_import, _ in rows:
        room = name.strip(" `")
        package = room.partition("/")[0]
        names = re.findall(r"`([\w/]+)`", may_import)
        found[room] = {each if "/" in each else f"{package}/{each}" for each in names}
    return found


def package(room: str) -> str:
    return "vinery_" + room.replace("/", ".")


def test_each_row_of_the_room_table_is_an_import_contract_and_each_folder_a_room() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {
        contract["source_modules"][0]: set(contract["forbidden_modules"])
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith("Room ")
    }
    table = rooms()
    del table[WIRING]  # it may import every room
    assert contracts == {
        package(room): {package(each) for each in table if each not in (room, *may_import)}
        | {"vinery_platform"}
        for room, may_import in table.items()
    }

    folders = {
        f"{package}/{folder.name}"
        for package in ("serving", "accounts")
        for folder in (REPOSITORY / package).iterdir()
        if (folder / "__init__.py").is_file() and folder.name != "migrations"
    }
    assert folders == rooms().keys() - {WIRING}


@table("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/decisions.md"])
def test_each_path_in_a_document_exists(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    paths = set(
        re.findall(r"(?<![/\w])(?:serving|accounts|platform|docs|tests)/[\w/-]+(?:\.\w+)?", text)
    )

    missing = {path for path in paths if not (REPOSITORY / path.rstrip("/")).exists()}

    assert not {path for path in missing if not path.startswith("accounts/login")}


def test_no_two_folders_import_each_other_and_the_longest_import_chain_is_short() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    modules = {module for module in graph.modules if ".migrations" not in module}
    imports = {each: graph.find_modules_directly_imported_by(each) & modules for each in modules}
    packages = {module for module in graph.modules if graph.find_children(module)}

    def folder(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    pairs: defaultdict[str, set[str]] = defaultdict(set)
    for module, imported in imports.items():
        pairs[folder(module)] |= {folder(each) for each in imported}

    assert not [(a, b) for a in pairs for b in pairs[a] if a < b and a in pairs[b]]

    @cache
    def chain(module: str) -> tuple[str, ...]:
        return (module, *max((chain(each) for each in imports[module]), key=len, default=()))

    longest = max((chain(module) for module in modules), key=len)
    assert len(longest) <= MAX_CHAIN, longest


def test_no_code_runs_texts_or_unpickles_bytes() -> None:
    """What a client sends could become code by these. Worker processes have answers without
    classes, see `serving/vinery_serving/workers/wire.py`."""
    code = [
        path
        for room in ("serving", "accounts", "platform")
        for path in (REPOSITORY / room).rglob("*.py")
    ]
    found = {
        f"{path.relative_to(REPOSITORY)}:{node.lineno}: {name}"
        for path in code
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _names_in(node)
        if name in UNSAFE and not (name == "pickle" and path.parent.name == "workers")
    }

    assert len(code) > 300
    assert found == set()


def _names_in(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [each.name for each in names]
        case ast.ImportFrom(module=str(module)):
            return [module]
        case ast.Call(func=ast.Name(id=name)):
            return [f"{name}()"]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
            return [f"{owner}.{name}()"]
        case ast.keyword(arg="shell", value=ast.Constant(value=True)):
            return ["shell=True"]
    return []


def test_the_glossary_is_short_and_retires_words() -> None:
    section = ARCHITECTURE.partition("## Glossary")[2].partition("\n## ")[0]
    assert len([line for line in section.splitlines() if line.startswith("|")][2:]) <= 40
    assert {"told", "away", "books"} <= retired_words(ARCHITECTURE)


@table(
    "line, words",
    [
        ("num_told = 1", ["told"]),
        ("class ToldAway:", ["told", "away"]),
        ("# It was TOLD.", ["told"]),
        ("replaced = placeholder", []),
        ("a quotation: right away", []),
    ],
)
def test_retired_words_are_found_inside_identifiers(line: str, words: list[str]) -> None:
    retired = frozenset({"told", "away", "place"})
    allowed = [Allowed("*.py", "right away")]

    assert [use.word for use in uses_in("a.py", line, retired, allowed)] == words
