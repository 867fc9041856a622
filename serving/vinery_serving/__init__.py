"""Producing tokens: from an HTTP body to the engine and back."""

import sys

# OpenVINO's Python package would start a thread and a process that report its use to Intel.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
