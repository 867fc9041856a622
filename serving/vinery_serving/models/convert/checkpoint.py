"""Reads what is converted: a folder with a checkpoint of Hugging Face."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from vinery_serving.models.convert.errors import ConvertError
from vinery_serving.models.convert.lines import Architecture, Task, architecture_of

_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth")
_GRAPHS: Final = ("openvino_model.xml", "openvino_language_model.xml")
# The end of the class that `architectures` of config.json names, and its task.
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
    """A checkpoint that can be converted."""

    folder: Path
    architecture: Architecture
    task: Task
    num_bytes: int  # of its weights
    has_code: bool  # whether config.json names code of the checkpoint

    @classmethod
    def read(cls, folder: Path, task: Task | None = None) -> Self:
        """Read a checkpoint; `task` None: the one of its class. Raises `ConvertError`."""
        config = _config(folder)
        model_type = config.get("model_type")
        if not isinstance(model_type, str) or not model_type:
            raise ConvertError(f"{folder / 'config.json'} names no model_type.")
        architecture = architecture_of(model_type)
        num_bytes = _weight_bytes(folder)
        if not num_bytes:
            raise ConvertError(
                f"{folder} has no weights: no file ends with {' or '.join(_WEIGHTS)}."
            )
        return cls(
            folder,
            architecture,
            _task(architecture, config, task),
            num_bytes,
            has_code=bool(config.get("auto_map")),
        )


def _config(folder: Path) -> Mapping[str, Any]:
    if not folder.is_dir():
        raise ConvertError(f"There is no folder {folder}.")
    if any((folder / name).is_file() for name in _GRAPHS):
        raise ConvertError(f"{folder} holds an OpenVINO model already: serve it as it is.")
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except FileNotFoundError:
        raise ConvertError(f"{folder} has no config.json: it is not a checkpoint.") from None
    except (OSError, ValueError) as error:
        raise ConvertError(f"{folder / 'config.json'} cannot be read: {error}.") from None
    if not isinstance(config, dict):
        raise ConvertError(f"{folder / 'config.json'} is not a JSON object.")
    return config


def _weight_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.suffix in _WEIGHTS)


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
    for name in classes:
        for end, task in _TASKS_OF_CLASSES:
            if name.endswith(end) and task in tasks:
                return task
    if len(tasks) == 1:
        return tasks[0]
    raise ConvertError(
        f"config.json does not show what {architecture.model_type} is for. Choose a task: "
        f"{', '.join(tasks)}.",
        "task",
    )
