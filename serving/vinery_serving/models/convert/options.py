"""The options of a conversion, and the exporter's arguments for them."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from vinery_serving.models.convert.checkpoint import Checkpoint, ConvertError, Task

Precision = Literal["fp16", "int8", "int4"]


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """The options of a conversion, with descriptions for administrators."""

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
