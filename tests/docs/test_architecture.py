"""Documents name files that exist, and no code runs texts."""

import ast
import re

from tests.conftest import REPOSITORY
from tests.tables import table

UNSAFE = {
    *("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"),
    *("eval()", "exec()", "os.system()", "os.popen()", "shell=True"),
}


@table("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/decisions.md"])
def test_each_path_in_a_document_exists(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    paths = set(
        re.findall(r"(?<![/\w])(?:serving|accounts|platform|docs|tests)/[\w/-]+(?:\.\w+)?", text)
    )

    missing = {path for path in paths if not (REPOSITORY / path.rstrip("/")).exists()}

    assert not {path for path in missing if not path.startswith("accounts/login")}


def test_no_code_runs_texts_or_unpickles_bytes() -> None:
    """What a client sends could become code by these. Worker processes have answers without
    classes, see `serving/vinery_serving/gateway/workers/worker.py`; a process that runs apart
    unpickles only the call of its parent."""
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
        if name in UNSAFE
        and not (name == "pickle" and (path.parent.name == "workers" or path.stem == "apart"))
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
