"""Models of an OpenVINO Model Server become served models, with a report of the differences."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models.rows.conftest import MODELS
from tests.tables import table
from vinery_platform.cli.commands import parser
from vinery_platform.cli.shape import Failure
from vinery_serving.media.tables.models import MediaFolder, MediaRule
from vinery_serving.models.models import ServedModel
from vinery_serving.models.ovms import sources
from vinery_serving.models.ovms.translation import translate

Run = Callable[..., tuple[int, str]]

OVMS = Path(__file__).parent / "ovms"
# From the model server's documentation, with most of the options listed there.
GRAPH = (OVMS / "chat.pbtxt").read_text()
EMBEDDINGS = (OVMS / "embeddings.pbtxt").read_text()
COMPOSE = (OVMS / "compose.yaml").read_text()


def test_the_text_form_of_protocol_buffers_is_read() -> None:
    text = """
    a: 1 a: [2, 3]  b { c: "x" 'y' d: -1.5e3 } # end
    [a.com / b.C]: < e: FIRST; f: true >
    """

    assert sources.parse_graph(text) == {
        "a": [1, 2, 3],
        "b": [{"c": ["xy"], "d": [-1500.0]}],
        "C": [{"e": ["FIRST"], "f": [True]}],
    }


@table(
    "text, message",
    [
        ("a: {", "line 1: the end is not expected"),
        *(("a: 1\n}", "line 2: } is not expected"), ("a: 'x", "line 1: ' is not expected")),
        ("a:\n\n?", "line 3: \\? is not expected"),
        *(("a: '\\xzz'", "line 1: '.*' is not expected"), ("a {" * 100, "line 1: ")),
    ],
)
def test_what_is_no_text_form_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        sources.parse_graph(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A model repository with one model and its graph."""
    folder = tmp_path / "models" / "OpenVINO" / "chat"
    shutil.copytree(MODELS / "tiny-chat", folder)
    (folder / "graph.pbtxt").write_text(GRAPH)
    return tmp_path / "models"


def test_a_graph_becomes_a_model_with_options_and_others_are_named(repository: Path) -> None:
    (servable,) = sources.read_path(repository, sources.Roots()).servables
    model = translate(servable, sources.Roots())
    assert (model.name, model.device) == ("OpenVINO/chat", "CPU")
    assert model.folder == repository / "OpenVINO" / "chat"
    assert model.options == json.loads((OVMS / "chat_options.json").read_text())
    assert [line.partition(":")[0] for line in model.lost] == ["enable_tool_guided_generation"]
    assert [line.split()[0] for line in model.changed] == ["best_of_limit"]

    graph = repository / "OpenVINO" / "chat" / "graph.pbtxt"
    graph.write_text('node { calculator: "ImageGenCalculator" }')
    assert [each.task for each in sources.read_path(repository, sources.Roots()).servables] == [
        "pictures"
    ]


def test_a_config_and_a_command_line_come_before_the_graph_of_a_folder(repository: Path) -> None:
    config = {
        "model_config_list": [
            {"config": {"name": "listed", "base_path": "OpenVINO/chat"}},
            {"config": {"name": "resnet", "base_path": "resnet"}},
        ],
        "mediapipe_config_list": [
            {"name": "OpenVINO/chat"},
            {"name": "other", "base_path": "OpenVINO/chat", "graph_path": "graph.pbtxt"},
        ],
    }
    (repository / "config.json").write_text(json.dumps(config))

    found = sources.read_path(repository, sources.Roots()).servables

    chat = repository / "OpenVINO" / "chat"
    assert [each.name for each in found[:3]] == ["OpenVINO/chat", "other", "listed"]
    assert {each.folder for each in found[:3]} == {chat}
    assert found[3].task == "inference of a classic model"

    roots = sources.Roots((("/models", repository),))
    found = sources.read_command(COMPOSE, roots)
    (servable,) = found.servables
    model = translate(servable, roots)
    assert (model.name, model.folder) == ("chat", repository / "OpenVINO" / "chat")
    assert model.options["cache_size_gb"] == 2
    assert model.options["max_running"] == 128
    assert model.options["draft_model"] == str(repository / "OpenVINO" / "chat")
    assert found.server["rest_port"] == "8000"


@table(
    "text",
    [
        "ovms --cache_size 2 --enable_prefix_caching=true --metrics_enable --model_path /m",
        "docker run image \\\n  --cache_size 2 \\\n --enable_prefix_caching=true \\\n"
        " --metrics_enable --model_path '/m'",
        '["--cache_size", "2", "--enable_prefix_caching=true", "--metrics_enable", '
        '"--model_path", "/m"]',
    ],
)
def test_flags_are_found_in_commands_scripts_and_lists(text: str) -> None:
    switches = {"enable_prefix_caching": "true", "metrics_enable": ""}
    assert sources.flags_of(text) == switches | {"cache_size": "2", "model_path": "/m"}


@pytest.mark.django_db
def test_an_embeddings_graph_becomes_an_embeddings_model(tmp_path: Path, run: Run) -> None:
    shutil.copytree(MODELS / "tiny-embed", tmp_path / "embed")
    (tmp_path / "embed" / "graph.pbtxt").write_text(EMBEDDINGS)

    status, report = run(str(tmp_path / "embed"), "--no-load")
    assert status == 0
    assert "  no counterpart: truncate: a request asks for it" in report
    served = ServedModel.objects.get()
    assert (served.task, served.device) == ("embeddings", "CPU")
    plugin = {"NUM_STREAMS": "1"}
    assert served.options == {"normalize": "always", "pooling": "cls", "plugin": plugin}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no config.json of a model server and no graph.pbtxt"),
        ({"graph.pbtxt": "node {"}, "graph.pbtxt is not a graph: line 1"),
        ({"config.json": '{"model_config_list": {}}'}, "must be a list of objects"),
        ({"config.json": '{"model_config_list": [1]}'}, "must be a list of objects"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_file(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(sources.UnreadableSource, match=message):
        sources.read_path(tmp_path, sources.Roots())


def test_each_option_has_a_line_and_those_of_an_npu_its_lengths(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text('{"do_sample": false, "top_p": 0.5, "max_new_tokens": 9}')
    plugins = '{"prompt_lookup": true, "MAX_PROMPT_LEN": 2048, "CACHE_DIR": "/c"}'
    options = {"draft_models_path": "/draft", "draft_device": "GPU", "draft_cache_size": 2}
    options |= {"draft_eagle3_mode": True, "dynamic_split_fuse": False, "pipeline_type": "LM"}
    options |= {"chat_template_mode": "MINJA", "generation_config_path": "own.json"}
    options |= {"plugin_config": plugins, "cache_eviction_config": "all"}
    options |= {"tool_parser": "unheard", "colour": "red", "best_of_limit": "many"}

    model = translate(sources.Servable("a model!", tmp_path, "here", options), sources.Roots())
    assert model.name == "a-model-"
    assert model.options == {
        "dynamic_split_fuse": False,
        "prompt_lookup": True,
        "eagle3_head": "/draft",
        "draft_device": "GPU",
        "draft_scheduler": {"cache_size_gb": 2},
        "defaults": {"temperature": 0, "top_p": 0.5, "max_tokens": 9},
    }
    lost = {line.partition(":")[0] for line in model.lost}
    assert lost == {
        *("pipeline_type", "chat_template_mode", "colour", "parsers"),
        *("best_of_limit", "cache_eviction_config"),
        *("plugin_config MAX_PROMPT_LEN", "plugin_config CACHE_DIR"),
    }
    assert len(model.changed) == 4  # the name, defaults, the prefix cache, the context

    plugin = {"MIN_RESPONSE_LEN": "256", "PREFILL_HINT": "STATIC"}
    given = {"max_prompt_len": 2048, "plugin_config": plugin, "device": "NPU"}
    model = translate(sources.Servable("a", tmp_path, "here", given), sources.Roots())
    assert (model.device, model.lost) == ("NPU", [])
    rest = {"PREFILL_HINT": "STATIC"}
    assert model.options == {"max_prompt_len": 2048, "min_response_len": 256, "plugin": rest}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_(*words: str) -> tuple[int, str]:
        arguments = parser("import-ovms").parse_args(["import-ovms", *words])
        return arguments.run(arguments), capsys.readouterr().out

    return run_


@pytest.mark.django_db
def test_a_second_import_changes_nothing(repository: Path, run: Run) -> None:
    command = ["--command", COMPOSE, "--map", f"/models={repository}"]
    graph = repository / "OpenVINO" / "chat" / "graph.pbtxt"
    graph.write_text(GRAPH.replace("cache_eviction_config", "unknown_config"))

    status, dry = run(*command, "--dry-run")
    assert (status, ServedModel.objects.count()) == (2, 0)
    assert "sparse_attention with the mode xattention and draft_model exclude each other" in dry
    graph.write_text(graph.read_text().replace("mode: XATTENTION", "mode: TRISHAPE"))

    status, dry = run(*command, "--dry-run")
    assert (status, ServedModel.objects.count(), MediaRule.objects.count()) == (0, 0, 0)
    assert "chat would be served from" in dry
    status, first = run(*command, "--no-load")
    assert status == 0
    assert "  taken over:     max_num_seqs is the option max_running: 128" in first
    assert "  no counterpart: unknown_config: Vinery has no such option" in first
    assert "  no counterpart: --rest_port: set VINERY_PORT" in first
    served = ServedModel.objects.get()
    assert (served.name, served.options["cache_size_gb"], served.is_loaded) == ("chat", 2, False)
    hosts = sorted(MediaRule.objects.values_list("host", flat=True))
    assert hosts == ["b.example.org", "images.example.org"]

    status, second = run(*command, "--no-load")
    assert status == 0
    assert "chat is served already" in second
    assert "Media are allowed: nothing new." in second
    again = ServedModel.objects.get()
    assert (again.pk, again.updated_at) == (served.pk, served.updated_at)
    assert (MediaRule.objects.count(), MediaFolder.objects.count()) == (2, 0)


@pytest.mark.django_db
def test_a_model_that_cannot_be_read_is_named_and_the_others_are_imported(
    repository: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("broken", "node {"), ("deep", "node {" * 100_000)):
        (repository / name).mkdir()
        (repository / name / "graph.pbtxt").write_text(text)
    monkeypatch.setattr(sources, "parse_graph", None)  # another process reads the files
    status, report = run(str(repository), "--no-load")
    assert status == 2
    broken = f"broken is not taken over: {repository}/broken/graph.pbtxt is not a graph: line 1"
    assert broken in report
    assert "deep/graph.pbtxt is not a graph: line 1: the end" in report
    assert [each.name for each in ServedModel.objects.all()] == ["OpenVINO/chat"]

    config, old = repository / "config.json", {"name": "old", "base_path": "/models/old"}
    listed = [{"name": "far", "base_path": "/models/far"}, {"name": "OpenVINO/chat"}]
    for configs, classic, expected, lines in (
        (listed, [], 2, ["far is not taken over: /models/far/graph.pbtxt cannot be read"]),
        (listed, [], 2, ["In a container, name its folder here: --map /models=FOLDER"]),
        (listed[1:], [], 0, ["OpenVINO/chat is served already"]),
        ([], [{"config": old}], 2, ["old is not taken over: Vinery does not import inference"]),
        ([], [], 0, ["This model server serves nothing."]),
    ):
        lists = {"mediapipe_config_list": configs, "model_config_list": classic}
        config.write_text(json.dumps(lists))
        status, report = run(str(config), "--no-load")
        assert status == expected
        assert [line for line in lines if line not in report] == []
    assert "--map" not in report, "nothing is missing"


@pytest.mark.django_db
def test_a_model_of_the_same_name_stays_as_it_is(repository: Path, run: Run) -> None:
    ServedModel.objects.create(name="OpenVINO/chat", folder=str(MODELS / "tiny-chat"))

    status, text = run(str(repository))

    assert status == 0
    assert "OpenVINO/chat is served already, with other settings: it stays" in text
    assert ServedModel.objects.get().options == {}


@pytest.mark.parametrize("words", [[], ["/m", "--command", "x"]])
def test_one_source_is_named(words: list[str], run: Run) -> None:
    with pytest.raises(Failure, match="Name a PATH, or a command line"):
        run(*words)
