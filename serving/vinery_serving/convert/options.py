"""What an administrator chooses for a conversion, and the exporter's arguments for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

import msgspec

from vinery_serving.convert.checkpoint import Checkpoint
from vinery_serving.convert.errors import ConvertError
from vinery_serving.convert.lines import Task

Precision = Literal["fp16", "int8", "int4"]
# The tasks of the exporter's command line, where they have another name.
_EXPORTER_TASKS: Final = {"text-generation": "text-generation-with-past"}
_INT4_ONLY: Final = ("group_size", "ratio", "all_layers", "awq")


class ConvertOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a conversion, with descriptions for administrators."""

    precision: Annotated[Precision, "of the weights: fp16, int8 or int4"] = "int8"
    task: Annotated[
        Task | None,
        "what the model does: text-generation, image-text-to-text, feature-extraction or "
        "text-classification; not set: as config.json shows",
    ] = None
    group_size: Annotated[
        int | None,
        "for int4: weights that share a scale; -1: a whole row; not set: the exporter's, mostly "
        "128. Layers that it does not divide get a smaller one",
    ] = None
    ratio: Annotated[
        float | None,
        "for int4: the part of the layers that gets 4 bits, 0 to 1; the others get 8",
    ] = None
    sym: Annotated[bool, "for int8 and int4: scales without a zero point"] = False
    all_layers: Annotated[bool, "for int4: also the embeddings and the last layer"] = False
    awq: Annotated[bool, "for int4: scale the weights by their sizes first (AWQ without data)"] = (
        False
    )
    trust_remote_code: Annotated[
        bool, "let the checkpoint run code that it brings, with all rights of this user"
    ] = False
    memory_limit_mb: Annotated[int, "of the conversion; 0: the limit of the server"] = 0

    def check(self) -> None:
        """Raises `ConvertError` for options that do not go together."""
        if self.precision != "int4":
            for name in _INT4_ONLY:
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
        task = _EXPORTER_TASKS.get(checkpoint.task, checkpoint.task)
        words = [
            *("--model", str(checkpoint.folder), "--task", task),
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
    known = ConvertOptions.__struct_fields__
    if unknown := sorted(values.keys() - set(known)):
        raise ConvertError(f"There is no option {unknown[0]}. There are {', '.join(known)}.")
    try:
        options = msgspec.convert(values, ConvertOptions)
    except msgspec.ValidationError as error:
        raise ConvertError(f"{error}.") from None
    options.check()
    return options


# How a command line reads each option.
CONVERT_TYPES: Final[Mapping[str, type]] = {
    "precision": str,
    "task": str,
    "group_size": int,
    "ratio": float,
    "sym": bool,
    "all_layers": bool,
    "awq": bool,
    "trust_remote_code": bool,
    "memory_limit_mb": int,
}


def documented_options() -> list[tuple[str, str]]:
    """Return each option with its meaning."""
    hints = get_type_hints(ConvertOptions, include_extras=True)
    return [(name, hints[name].__metadata__[0]) for name in ConvertOptions.__struct_fields__]
