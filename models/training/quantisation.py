"""Stores the matrices of an exported graph as int8."""

from pathlib import Path

import nncf
import openvino as ov


def quantise(path: Path) -> None:
    """Store every matrix of a graph as int8 with a scale and a zero point per row."""
    float_model = path.rename(path.with_name("float_model.xml"))
    path.with_suffix(".bin").rename(float_model.with_suffix(".bin"))
    graph = ov.Core().read_model(float_model)
    ov.save_model(nncf.compress_weights(graph, mode=nncf.CompressWeightsMode.INT8_ASYM), path)
    del graph  # It maps the files that go next.
    float_model.unlink()
    float_model.with_suffix(".bin").unlink()
