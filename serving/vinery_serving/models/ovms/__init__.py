"""What OpenVINO Model Server is configured with, as served models and a report."""
