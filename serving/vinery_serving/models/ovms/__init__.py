"""Reads a configuration of OpenVINO Model Server into served models and a report."""
