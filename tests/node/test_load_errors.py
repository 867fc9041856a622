"""An administrator reads why a model cannot load, and OpenVINO's own words below."""

from __future__ import annotations

from tests.tables import table
from vinery_serving.node.backoff import FailureKind
from vinery_serving.node.load_errors import killed, load_failure

_CORE = "Exception from src/inference/src/cpp/core.cpp:117:\n"
_NO_GPU = f"""{_CORE}Cannot load library "/lib/openvino/libs/libopenvino_intel_gpu_plugin.so": \
libOpenCL.so.1: cannot open shared object file: No such file or directory
"""
_NO_NPU = f"""{_CORE}Exception from src/inference/src/dev/plugin.cpp:54:
Exception from src/plugins/intel_npu/src/compiler_adapter/src/plugin_compiler_adapter.cpp:54:
VCL compiler loading failed, aborting. Error: Exception from vcl_api.cpp:22:
Cannot load library "/lib/openvino/libs/libopenvino_intel_npu_compiler_loader.so": cannot open \
shared object file: No such file or directory
"""
_GARBAGE = """Exception from src/inference/src/cpp/core.cpp:84:
Check 'is_axis_valid(axis, r)' failed at src/core/src/validation_util.cpp:336:
While validating node 'opset8::Gather Gather_71 (opset1::Convert weight[0]:f32[3072,256]) -> ()' \
with friendly_name 'Gather_71':
Axis 95816893 out of the tensor rank range [-2, 1].
"""
_NO_USABLE_GPU = """[GPU] Can't get PERFORMANCE_HINT property as no supported devices found or an \
error happened during devices query.
[GPU] Please check OpenVINO documentation for GPU drivers setup guide.
"""


@table(
    "original, cause, advice",
    [
        (_NO_GPU, "This machine has no GPU runtime", "Install Intel's compute runtime"),
        (_NO_USABLE_GPU, "OpenVINO found no GPU that it can use", "/dev/dri"),
        (_NO_NPU, "This machine has no NPU driver", "Install Intel's NPU driver"),
        (
            f'{_CORE}Device with "XYZ" name is not registered in the OpenVINO Runtime\n',
            "OpenVINO knows no device XYZ.",
            "vinery devices",
        ),
        (
            f"{_CORE}CPU plugin supports only '' as device id\n",
            "one device CPU, without a number",
            "Choose CPU.",
        ),
        (
            "Check 'is_valid_weights_range(...)' failed\nIncorrect weights in bin file!\n",
            "A weights file is cut",
            "Copy the folder again.",
        ),
        (_GARBAGE, "The weights do not fit the graph", "Copy the folder again."),
        (
            "Cannot create MatMul layer a/b id:113 from unsupported opset: opset99\n",
            "this version of OpenVINO does not know",
            "Export the model for this version",
        ),
        (
            "Opset opset1 doesn't contain the operation with type: NewOp\n",
            "this version of OpenVINO does not know",
            "Export the model for this version",
        ),
        (
            'Unable to read the model: "/m/openvino_model.xml" Please check that model format\n',
            "The graph cannot be read",
            "Copy the folder again.",
        ),
        (
            "Check 'budget_in_bytes <= total_available_memory' failed at cache_orchestrator.hpp\n",
            "cache_size_gb is larger than the memory",
            "Lower cache_size_gb",
        ),
        (
            f"{_CORE}NotFound: Unsupported property NO_SUCH by CPU plugin.\n",
            "The device CPU has no property NO_SUCH.",
            "Change the option plugin.",
        ),
        (
            f"{_CORE}Wrong value FASTfor property key PERFORMANCE_HINT. Expected only LATENCY.\n",
            "The property PERFORMANCE_HINT cannot be FAST.",
            "Change the option plugin.",
        ),
    ],
)
def test_what_another_attempt_cannot_heal_is_explained_and_final(
    original: str, cause: str, advice: str
) -> None:
    failure = load_failure(original)
    sentences, _, below = failure.text.partition("\n\n")
    assert cause in sentences
    assert advice in sentences
    assert below == original.strip()
    assert failure.kind is FailureKind.FINAL


@table(
    "original",
    [
        f"{_CORE}Exception from src/inference/src/dev/plugin.cpp:54:\nstd::bad_alloc\n",
        "Can not create file mapping for 8, err=Cannot allocate memory",
        f"{_CORE}Resource temporarily unavailable",
        "MemoryError()",
        "The first token failed: Check 'shape_size(shape) == 0 || m_ptr != nullptr' failed",
        "[GPU] clEnqueueNDRangeKernel, error code: -5 CL_OUT_OF_RESOURCES",
    ],
)
def test_memory_may_be_free_later(original: str) -> None:
    failure = load_failure(original)
    assert "memory" in failure.text.partition("\n\n")[0]
    assert "Unload other models" in failure.text
    assert failure.text.endswith(original.strip())
    assert failure.kind is FailureKind.PASSING


@table(
    "sentence, kind",
    [
        ("Something new.", FailureKind.PASSING),
        *(
            (each, FailureKind.FINAL)
            for each in (
                "/m/openvino_model.xml is not an OpenVINO graph: no element found: line 2.",
                "logits_processors: no.such:thing cannot be imported: No module named 'no'",
                "The draft model's folder /nowhere has no openvino_model.xml.",
                "The EAGLE-3 head /head does not fit this model. Choose one that was trained for "
                "it, or leave out the option eagle3_head.",
            )
        ),
    ],
)
def test_a_sentence_of_vinery_and_an_unknown_error_stand_alone(
    sentence: str, kind: FailureKind
) -> None:
    failure = load_failure(f"{sentence}\n")
    assert failure.text == sentence
    assert failure.kind is kind


def test_an_engine_that_was_killed_is_no_fault_of_its_model() -> None:
    failure = killed("The engine process ended with status -9.")
    assert failure.kind is FailureKind.KILLED
    assert "killed while it loaded" in failure.text
    assert failure.text.endswith("\n\nThe engine process ended with status -9.")
