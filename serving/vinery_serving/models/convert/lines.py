"""Which line of transformers the export of an architecture needs, from `lines.toml`.

A line is one release of transformers with all packages that are installed beside it.
"""

import difflib
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

from vinery_serving.models.convert.errors import ConvertError

Task = Literal["text-generation", "image-text-to-text", "feature-extraction", "text-classification"]
TASKS: Final[tuple[Task, ...]] = get_args(Task)
_DATA: Final = Path(__file__).with_name("lines.toml")


@dataclass(frozen=True, slots=True)
class Line:
    """One environment: its name, such as 5.0, and what is installed, such as `nncf==3.4.0`."""

    name: str
    packages: tuple[str, ...]
    torch: str  # installed first, from an index of its own

    @property
    def digest(self) -> str:
        """Names what is installed: an environment with another one is obsolete."""
        return hashlib.sha256("\n".join((self.torch, *self.packages)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Architecture:
    """A `model_type` of config.json, with the line and the tasks that its export knows."""

    model_type: str
    line: Line
    tasks: tuple[Task, ...]


def lines() -> Mapping[str, Line]:
    """Return all lines by name, the one for most architectures first."""
    return _tables()[0]


def architectures() -> Mapping[str, Architecture]:
    """Return all known architectures by `model_type`."""
    return _tables()[1]


def line_named(name: str) -> Line:
    """Raises `ConvertError` for an unknown name."""
    if name not in lines():
        raise ConvertError(f"There is no environment {name}. There are {', '.join(lines())}.")
    return lines()[name]


def architecture_of(model_type: str) -> Architecture:
    """Raises `ConvertError` for an architecture that no line can export."""
    known = architectures()
    if model_type in known:
        return known[model_type]
    near = difflib.get_close_matches(model_type, known, n=1)
    advice = f" The nearest known one is {near[0]}." if near else ""
    raise ConvertError(
        f"Vinery knows no conversion of the architecture {model_type}.{advice} "
        "`vinery convert architectures` lists those that it knows. Look for a repository that has "
        "been exported for OpenVINO."
    )


@cache
def _tables() -> tuple[Mapping[str, Line], Mapping[str, Architecture]]:
    data = tomllib.loads(_DATA.read_text(encoding="utf-8"))
    by_name = {name: _line(name, table, data) for name, table in data["lines"].items()}
    known = {
        model_type: Architecture(model_type, by_name[name], tuple(tasks))
        for name, table in data["lines"].items()
        for model_type, tasks in table["architectures"].items()
    }
    return by_name, known


def _line(name: str, table: Mapping[str, Any], data: Mapping[str, Any]) -> Line:
    return Line(name, tuple(sorted((*data["packages"], *table["packages"]))), data["torch"])
