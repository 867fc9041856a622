"""Reads and changes the logits of a step before the sampler gets them. The hook is a Python
operation in the model's graph (`engine/graph`). The runtime calls it in the middle of a step, on
the engine's thread, with the rows of logits that will be sampled. While no callback is set, it
costs some 40 us a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import openvino as ov

_NO_IDS: Final = np.zeros(0, np.int32)


class StepView(NamedTuple):
    """The tensors of a step. Valid during the callback only: GenAI owns the memory."""

    logits: npt.NDArray[np.float32]  # (num_rows, vocab_size), writable
    # (num_tokens,), of all tokens that the step computes; of a vision model (0,)
    token_ids: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]  # (num_tokens,); with rows (3 * num_tokens,), row by row


class LogitsHook(ov.Op):  # type: ignore[misc]
    """The operation that calls `callback`. Its output is not used."""

    # The runtime instantiates this class itself, so that instances can share state only through
    # class attributes. An engine process has one pipeline.
    callback: ClassVar[Callable[[StepView], None] | None] = None
    _TYPE: ClassVar[Any] = ov.Type.f32
    _SHAPE: ClassVar[Any] = ov.PartialShape([1])
    # The instance that serves as every clone once the model is compiled.
    _compiled: ClassVar[LogitsHook | None] = None

    def __init__(self, inputs: Any = None) -> None:
        super().__init__(self, inputs)

    @classmethod
    def before_compile(cls) -> None:
        cls._compiled = None

    @classmethod
    def after_compile(cls) -> None:
        """Call when the model is compiled. Later clones only report the output's shape."""
        cls._compiled = cls()
        cls._compiled.set_output_type(0, cls._TYPE, cls._SHAPE)

    def validate_and_infer_types(self) -> None:
        """The output is one number that is not used. The runtime calls this in every step."""
        if self is not LogitsHook._compiled:
            self.set_output_type(0, self._TYPE, self._SHAPE)

    def clone_with_new_inputs(self, new_inputs: Any) -> LogitsHook:
        """Graph passes call this, and every step calls it to learn the output's shape. The shape
        never changes, and a clone would take longer than the rest of the hook."""
        return LogitsHook._compiled or LogitsHook(new_inputs)

    def visit_attributes(self, _visitor: Any) -> bool:
        return True

    def has_evaluate(self) -> bool:
        return True

    def evaluate(self, _outputs: Any, inputs: Any) -> bool:
        if LogitsHook.callback is not None:
            logits, *ids, positions = (each.data for each in inputs)
            rows = logits.reshape(-1, logits.shape[-1])
            step_ids = ids[0].reshape(-1) if ids else _NO_IDS
            LogitsHook.callback(StepView(rows, step_ids, positions.reshape(-1)))
        return True
