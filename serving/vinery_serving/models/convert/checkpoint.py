"""Architectures that can be converted, each with the line for the export, checkpoints, and options.

A line, in `lines.toml`, is one release of transformers with all packages beside it; `lines.lock`
has their hashes. A checkpoint is a folder in Hugging Face's layout.
"""

import difflib
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from vinery_serving.models.jobs import JobFailed


class ConvertError(JobFailed):
    """The message is a sentence that names what to change. `option` has the wrong value; empty: no
    single option is at fault."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message, option)
        self.option = option

    def __str__(self) -> str:
        return str(self.args[0])


Task = Literal["text-generation", "image-text-to-text", "feature-extraction", "text-classification"]
_DATA: Final = Path(__file__).with_name("lines.toml")


@dataclass(frozen=True, slots=True)
class Line:
    """An environment: a name such as 5.0, and packages such as `nncf==3.4.0 --hash=sha256:...`."""

    name: str
    packages: tuple[str, ...]
    torch: str  # installed first, from an index of its own, whose builds have other hashes

    @property
    def digest(self) -> str:
        """SHA-256 of the packages: an environment with another digest is obsolete."""
        return hashlib.sha256("\n".join((self.torch, *self.packages)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Architecture:
    """A `model_type` of config.json, with the line and the tasks that its export knows."""

    model_type: str
    line: Line
    tasks: tuple[Task, ...]


def lines() -> Mapping[str, Line]:
    return _tables()[0]


def architectures() -> Mapping[str, Architecture]:
    return _tables()[1]


def line_named(name: str) -> Line:
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
    hashes = _DATA.with_suffix(".lock").read_text(encoding="ascii").splitlines()
    locked = dict(line.split(" ", 1) for line in hashes)
    by_name, known = {}, {}
    for name, table in data["lines"].items():
        packages = sorted((*data["packages"], *table["packages"]))
        line = Line(name, tuple(f"{each} {locked[each]}" for each in packages), data["torch"])
        by_name[name] = line
        for model_type, tasks in table["architectures"].items():
            known[model_type] = Architecture(model_type, line, tuple(tasks))
    return by_name, known


_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth")
# Ends of class names in `architectures` of config.json, and their tasks.
_TASKS_OF_CLASSES: Final[tuple[tuple[str, Task], ...]] = (
    ("ForCausalLM", "text-generation"),
    ("LMHeadModel", "text-generation"),
    ("ForSequenceClassification", "text-classification"),
    ("ForConditionalGeneration", "image-text-to-text"),
    ("Model", "feature-extraction"),
    ("ForMaskedLM", "feature-extraction"),
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    folder: Path
    architecture: Architecture
    task: Task
    num_bytes: int  # of its weights

    @classmethod
    def read(cls, folder: Path, task: Task | None = None) -> Self:
        """Read a checkpoint; `task` None: the task of its class. Raises `ConvertError`."""
        config = _config(folder)
        model_type = config.get("model_type")
        if not isinstance(model_type, str) or not model_type:
            raise ConvertError(f"{folder / 'config.json'} names no model_type.")
        architecture = architecture_of(model_type)
        weights = [file for file in folder.iterdir() if file.suffix in _WEIGHTS]
        num_bytes = sum(file.stat().st_size for file in weights)
        if not num_bytes:
            raise ConvertError(
                f"{folder} has no weights: no file ends with {' or '.join(_WEIGHTS)}."
            )
        return cls(folder, architecture, _task(architecture, config, task), num_bytes)


def check(folder: Path, task: Task | None) -> None:
    """Raises `ConvertError` for a folder that is no checkpoint."""
    Checkpoint.read(folder, task)


def _config(folder: Path) -> Mapping[str, Any]:
    from vinery_serving.prompting.folder import UnusableFolder, read_object  # few commands need it

    if not folder.is_dir():
        raise ConvertError(f"There is no folder {folder}.")
    graphs = ("openvino_model.xml", "openvino_language_model.xml")
    if any((folder / name).is_file() for name in graphs):
        raise ConvertError(f"{folder} holds an OpenVINO model already: serve it as it is.")
    try:
        config = read_object(folder / "config.json")
    except UnusableFolder as error:
        raise ConvertError(str(error)) from None
    if not config:
        raise ConvertError(f"{folder} has no config.json: it is not a checkpoint.")
    return config


def _task(architecture: Architecture, config: Mapping[str, Any], wanted: Task | None) -> Task:
    tasks = architecture.tasks
    if wanted is not None and wanted not in tasks:
        raise ConvertError(
            f"{architecture.model_type} cannot be converted for the task {wanted}. Its tasks: "
            f"{', '.join(tasks)}.",
            "task",
        )
    if wanted is not None:
        return wanted
    named = config.get("architectures")
    classes = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    fitting = [
        task
        for name in classes
        for end, task in _TASKS_OF_CLASSES
        if name.endswith(end) and task in tasks
    ]
    if fitting or len(tasks) == 1:
        return (*fitting, *tasks)[0]
    raise ConvertError(
        f"config.json does not show what {architecture.model_type} is for. Choose a task: "
        f"{', '.join(tasks)}.",
        "task",
    )


# -- The options of a conversion, and the exporter's arguments for them

Precision = Literal["fp16", "int8", "int4"]


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    precision: Annotated[Precision, "Of the weights: fp16, int8 or int4."] = "int8"
    task: Annotated[
        Task | None,
        "What the model does: text-generation, image-text-to-text, feature-extraction or "
        "text-classification; not set: as config.json shows.",
    ] = None
    group_size: Annotated[
        int | None,
        "For int4: weights that share a scale; -1: a whole row; not set: the exporter's, mostly "
        "128. Layers that it does not divide get a smaller one.",
    ] = None
    ratio: Annotated[
        float | None, "For int4: the part of the layers that gets 4 bits, 0 to 1; the others get 8."
    ] = None
    sym: Annotated[
        bool, "For int8 and int4: scales without a zero point.", {"label": "Symmetric"}
    ] = False
    all_layers: Annotated[bool, "For int4: also the embeddings and the last layer."] = False
    awq: Annotated[
        bool,
        "For int4: scale the weights by their sizes first (AWQ without data).",
        {"label": "AWQ"},
    ] = False
    trust_remote_code: Annotated[
        bool,
        "Let the checkpoint run code that it brings, with all rights of this user.",
        {"label": "Run code of the checkpoint"},
    ] = False
    memory_limit_mb: Annotated[
        int, "Of the conversion; 0: the limit of the server.", {"label": "Memory limit in MB"}
    ] = 0

    def check(self) -> None:
        if self.precision != "int4":
            for name in ("group_size", "ratio", "all_layers", "awq"):
                if getattr(self, name) not in (None, False):
                    raise ConvertError(f"{name} is for int4 and not for {self.precision}.", name)
        if self.precision == "fp16" and self.sym:
            raise ConvertError("sym is for int8 and int4 and not for fp16.", "sym")
        if self.group_size is not None and self.group_size != -1 and self.group_size < 1:
            raise ConvertError("group_size must be -1 or positive.", "group_size")
        if self.ratio is not None and not 0 <= self.ratio <= 1:
            raise ConvertError("ratio must be from 0 to 1.", "ratio")
        if self.memory_limit_mb < 0:
            raise ConvertError("memory_limit_mb must not be negative.", "memory_limit_mb")

    def arguments(self, checkpoint: Checkpoint, output: Path) -> list[str]:
        """Return the words behind `optimum-cli export openvino`."""
        with_past = "-with-past" if checkpoint.task == "text-generation" else ""
        words = [
            *("--model", str(checkpoint.folder), "--task", checkpoint.task + with_past),
            # Otherwise sentence-transformers is needed for embeddings.
            *("--library", "transformers", "--weight-format", self.precision),
        ]
        if self.precision == "int4":
            words += ["--group-size-fallback", "adjust"]
        for name in ("group_size", "ratio"):
            if (value := getattr(self, name)) is not None:
                # With `=`, because a value may begin with a minus.
                words.append(f"--{name.replace('_', '-')}={value}")
        for name in ("sym", "all_layers", "awq", "trust_remote_code"):
            if getattr(self, name):
                words.append(f"--{name.replace('_', '-')}")
        return [*words, str(output)]


def parse(values: dict[str, Any]) -> ConvertOptions:
    """Raises `ConvertError` with a sentence for the user."""
    known = [each.name for each in fields(ConvertOptions)]
    if unknown := sorted(values.keys() - set(known)):
        raise ConvertError(f"There is no option {unknown[0]}. There are {', '.join(known)}.")
    try:
        options = msgspec.convert(values, ConvertOptions)
    except msgspec.ValidationError as error:
        raise ConvertError(f"{error}.") from None
    options.check()
    return options
