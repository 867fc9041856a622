"""A hub on this machine, and an environment in which no other hub is asked."""

from collections.abc import Iterator

import huggingface_hub
import pytest

from tests.fakes.hub import FakeHub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    with FakeHub() as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.endpoint)
        monkeypatch.setenv("VINERY_JOB_NETWORKS", "127.0.0.0/8,::1/128")  # of its large files
        yield fake
    huggingface_hub.close_session()
