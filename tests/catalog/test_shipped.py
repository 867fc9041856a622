"""Models that ship with Vinery are added by their names."""

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from vinery_serving.models import registry
from vinery_serving.models.folder_options import shipped_folder, shipped_models

pytestmark = pytest.mark.django_db
FOLDER = REPOSITORY / "models" / "tiny-vision"


def test_names_of_reference_models_are_those_of_their_folders() -> None:
    assert {"tiny-chat", "tiny-vision"} <= set(shipped_models())
    assert shipped_folder("tiny-vision") == FOLDER
    for name in ("", ".", "..", "../models/tiny-chat", "training", "tiny"):
        assert shipped_folder(name) is None


def test_a_name_does_for_the_folder_unless_there_is_one_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    model = registry.add_model(Path("tiny-vision"), name="seer", load=False)
    assert Path(model.folder) == FOLDER

    (tmp_path / "tiny-vision").symlink_to(REPOSITORY / "models" / "tiny-chat")
    model = registry.add_model(Path("tiny-vision"), name="mine", load=False)
    assert Path(model.folder) == REPOSITORY / "models" / "tiny-chat"
