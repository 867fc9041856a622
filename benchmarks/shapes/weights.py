"""Random weights, as nodes in the form in which exported int8 models hold theirs.

A matrix is a signed 8-bit constant, converted and multiplied by one scale for each row. The
CPU plugin recognises this chain as compressed weights and keeps it in 8 bits.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from openvino import Node, Type
from openvino import opset13 as ops

# Standard deviation of whole numbers drawn evenly from -128 to 127.
INT8_STD = float(np.sqrt((256**2 - 1) / 12))
# How much smaller a quiet row is. Far enough from 1 for such a row never to hold the largest
# logit, far enough from 0 for its embedding to survive the first RMSNorm.
QUIET = 0.1


class RandomWeights:
    """Draws weights one after the other. The same seed and order give the same model."""

    def __init__(self, seed: int, std: float) -> None:
        self._rng = np.random.default_rng(seed)
        self._std = std

    def matrix(self, num_rows: int, num_columns: int, quiet_rows: Collection[int] = ()) -> Node:
        """float32, (num_rows, num_columns). In a head, quiet rows are tokens never chosen."""
        drawn = np.frombuffer(self._rng.bytes(num_rows * num_columns), np.int8)
        scale = np.full((num_rows, 1), self._std / INT8_STD, np.float16)
        scale[list(quiet_rows)] *= np.float16(QUIET)

        half = ops.convert(ops.constant(drawn.reshape(num_rows, num_columns)), Type.f16)
        return ops.convert(ops.multiply(half, ops.constant(scale)), Type.f32)

    def bias(self, size: int) -> Node:
        """float32, (1, 1, size)."""
        drawn = self._rng.normal(0, self._std, (1, 1, size))
        return ops.constant(drawn.astype(np.float32))
