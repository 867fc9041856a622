"""The task of a model is read from the folder, and the options must suit the task."""

import json
import shutil
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError

from tests.models.rows.conftest import MODELS
from vinery_accounts.access import changes
from vinery_serving.core.tasks import Task
from vinery_serving.models import registry
from vinery_serving.models.folder_options import UnusableModel, read_task
from vinery_serving.models.models import ServedModel


def test_the_task_of_shipped_models_and_of_one_without_a_template_is_known(tmp_path: Path) -> None:
    tasks = {"chat": Task.CHAT, "vision": Task.VISION}
    tasks |= {"embed": Task.EMBEDDINGS, "rerank": Task.RERANK}
    assert {name: read_task(MODELS / f"tiny-{name}") for name in tasks} == tasks

    assert read_task(tmp_path) is None

    shutil.copy(MODELS / "tiny-chat" / "openvino_model.xml", tmp_path)
    assert read_task(tmp_path) is Task.COMPLETION


def test_a_classifier_with_many_labels_is_refused(tmp_path: Path) -> None:
    shutil.copy(MODELS / "tiny-rerank" / "openvino_model.xml", tmp_path)
    labels = {str(number): f"LABEL_{number}" for number in range(3)}
    (tmp_path / "config.json").write_text(json.dumps({"id2label": labels}))

    with pytest.raises(UnusableModel, match="a classifier with 3 labels"):
        read_task(tmp_path)


@pytest.mark.django_db
class TestServedModels:
    def test_a_model_gets_its_task_when_it_is_added_and_with_a_new_folder(self) -> None:
        model = registry.add_model(Path("tiny-embed"), name="e", load=False)
        assert model.task == "embeddings"
        assert ServedModel.objects.get(name="e").task == "embeddings"

        changes.change(model, folder=str(MODELS / "tiny-rerank"))
        assert ServedModel.objects.get(name="e").task == "rerank"

    def test_an_option_without_effect_is_refused_where_it_is_set(self) -> None:
        with pytest.raises(ValidationError, match="pooling has no effect on this model"):
            registry.add_model(Path("tiny-chat"), name="c", options={"pooling": "mean"})
        with pytest.raises(ValidationError, match="draft_model has no effect on this model"):
            registry.add_model(Path("tiny-embed"), name="e", options={"draft_model": "/tmp"})
        registry.add_model(Path("tiny-embed"), name="e", options={"pooling": "cls"}, load=False)

    def test_a_rerank_model_needs_its_fast_tokenizer(self, tmp_path: Path) -> None:
        shutil.copytree(MODELS / "tiny-rerank", tmp_path / "model")
        (tmp_path / "model" / "tokenizer.json").unlink()

        with pytest.raises(ValidationError, match="queries and documents as pairs"):
            registry.add_model(tmp_path / "model", name="r")
