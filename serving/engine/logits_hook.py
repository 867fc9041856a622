"""Looks at what a step computes before the sampler does, and may change it.

The tap is a Python operation in the model's graph (`serving.engine.graph`). It is called
in the middle of a step, in the thread that steps, with the logits of the rows that will be
sampled; what is written into them is what the sampler gets. While nobody looks, it costs
some 40 microseconds in a step, whatever the size of the vocabulary: three calls into Python,
with the cold caches that the model leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import openvino as ov

IdArray = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]


class View(NamedTuple):
    """What one step computes. Valid only during the call: the memory is the engine's."""

    logits: Logits  # (num_rows, vocab_size), writable
    token_ids: IdArray  # (num_tokens,), of all that the step reads
    positions: IdArray  # (num_tokens,)


class LogitsHook(ov.Op):  # type: ignore[misc]
    """Hands the logits to `look`, and says nothing itself."""

    # The runtime makes instances of its own from the class, so that they can only share
    # class attributes. One engine process has one pipeline, so one of each is enough.
    look: ClassVar[Callable[[View], None] | None] = None
    _TYPE: ClassVar[Any] = ov.Type.f32
    _SHAPE: ClassVar[Any] = ov.PartialShape([1])
    # Set once the model is compiled, see `clone_with_new_inputs`.
    _settled: ClassVar[LogitsHook | None] = None

    def __init__(self, inputs: Any = None) -> None:
        super().__init__(self, inputs)

    @classmethod
    def begin(cls) -> None:
        """A model is about to be compiled."""
        cls._settled = None

    @classmethod
    def settle(cls) -> None:
        """The model is compiled: from here on operations are cloned only to learn the shape
        of their output."""
        cls._settled = cls()
        cls._settled.set_output_type(0, cls._TYPE, cls._SHAPE)

    def validate_and_infer_types(self) -> None:
        """One number, which nobody reads. Called in every step, too."""
        if self is not LogitsHook._settled:
            self.set_output_type(0, self._TYPE, self._SHAPE)

    def clone_with_new_inputs(self, new_inputs: Any) -> LogitsHook:
        """Called by graph passes, and then in every step to learn the output's shape. That is
        always the same, and making the clone took longer than all the rest."""
        return LogitsHook._settled or LogitsHook(new_inputs)

    def visit_attributes(self, _visitor: Any) -> bool:
        """There are none."""
        return True

    def has_evaluate(self) -> bool:
        """It runs on the CPU, in Python."""
        return True

    def evaluate(self, _outputs: Any, inputs: Any) -> bool:
        """Runs in the thread that steps."""
        if LogitsHook.look is not None:
            logits, token_ids, positions = (each.data for each in inputs)
            rows = logits.reshape(-1, logits.shape[-1])
            LogitsHook.look(View(rows, token_ids.reshape(-1), positions.reshape(-1)))
        return True
