"""Makes the training package importable; it lives beside the models, outside the platform."""

import sys
from pathlib import Path

MODELS = Path(__file__).resolve().parents[2] / "models"

sys.path.insert(0, str(MODELS))
