"""The grammar canary: a tiny model that compiles grammars as the real one does, because a grammar
that cannot be compiled fails a whole step of the real one. A checker is a process with a canary
(`engine.checkers`). It answers each `GrammarSpec` on a `multiprocessing` pipe, and ends with the
other end."""

import contextlib
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import openvino as ov
import openvino_genai as genai
import psutil
from openvino import opset13 as op

from vinery_serving.engine.coded_tokenizer import int_constant as _int
from vinery_serving.engine.pipeline import structured_output
from vinery_serving.transport.messages import GrammarSpec

# CPU seconds of a grammar: on a busy machine an ordinary one takes longer by the clock.
CHECK_TIMEOUT_S: Final = 2.0
# Why a grammar does not compile, CPU seconds, memory. The first is empty: the checker is ready.
Checked = tuple[str | None, float, int]
_WIDTH: Final = 8
_PROPERTIES: Final = {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False}


class Canary:
    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        """Raises RuntimeError or ValueError if the graph does not load. `tokenizer` is GenAI's, and
        holds the compiled grammars of all pipelines that share it."""
        # GenAI reads the files only while loading: a process that is killed later leaves none.
        with tempfile.TemporaryDirectory(prefix="vinery-canary-") as folder:
            ov.save_model(_graph(vocab_size), Path(folder) / "openvino_model.xml")
            self._pipeline = genai.ContinuousBatchingPipeline(
                folder, tokenizer, genai.SchedulerConfig(), "CPU", **_PROPERTIES
            )

    def refusal(self, grammar: GrammarSpec) -> str | None:
        """Return why the grammar cannot be compiled; None if it can."""
        config = genai.GenerationConfig()
        config.max_new_tokens = 1
        config.ignore_eos = True
        try:
            config.structured_output_config = structured_output(grammar)
            prompt = ov.Tensor(np.zeros((1, 1), dtype=np.int64))
            self._pipeline.generate([prompt], [config])
        except RuntimeError as error:
            return _reason(str(error))
        except UnicodeDecodeError as error:  # the message quotes half a character of the grammar
            return _reason(error.object.decode(errors="replace"))
        return None


def main(folder: Path, vocab_size: int, fd: int) -> None:
    encode, decoder = msgspec.msgpack.encode, msgspec.msgpack.Decoder(GrammarSpec)
    use = psutil.Process()
    with Connection(fd) as engine, contextlib.suppress(EOFError, ConnectionError):
        canary = Canary(genai.Tokenizer(str(folder), **_PROPERTIES), vocab_size)
        checked: Checked = (None, 0.0, 0)
        while True:
            engine.send_bytes(encode(checked))
            grammar = decoder.decode(engine.recv_bytes())
            began_s = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, CHECK_TIMEOUT_S)  # its signal ends the process
            refusal = canary.refusal(grammar)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            checked = refusal, time.process_time() - began_s, use.memory_info().rss


def _reason(text: str) -> str:
    """Return the grammar library's message without the source locations around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["unknown reason"]
    # OpenVINO's exceptions begin with a source location and end with the message.
    line = lines[-1] if lines[0].startswith("Exception from") else lines[0]
    _, mark, rest = line.partition(".cc:")
    return rest.partition(": ")[2].strip() or line if mark else line


def _graph(vocab_size: int) -> ov.Model:
    """Build an embedding, one attention head with its KV cache, and a projection: all zeros."""
    ids, mask, positions = (
        _input(name) for name in ("input_ids", "attention_mask", "position_ids")
    )
    beams = op.parameter([-1], np.int32, name="beam_idx")
    beams.output(0).set_names({"beam_idx"})
    table = op.constant(np.zeros((vocab_size, _WIDTH), np.float32))
    hidden = op.gather(table, ids, _int(0))
    query = op.transpose(_reshape(hidden, [0, 0, 1, _WIDTH]), _int([0, 2, 1, 3]))
    batch = op.unsqueeze(op.gather(op.shape_of(ids), _int(0), _int(0)), _int(0))
    keys, assign_keys = _cached("past_key_values.0.key", query, beams, batch)
    values, assign_values = _cached("past_key_values.0.value", query, beams, batch)
    wide_mask = op.convert(op.unsqueeze(op.unsqueeze(mask, _int(1)), _int(1)), np.float32)
    attention = op.scaled_dot_product_attention(query, keys, values, wide_mask)
    flat = _reshape(op.transpose(attention, _int([0, 2, 1, 3])), [0, 0, _WIDTH])
    # Without a use of the positions the graph would lose this input.
    offset = op.convert(op.unsqueeze(positions, _int(2)), np.float32)
    flat = op.add(flat, op.multiply(offset, op.constant(np.float32(0))))
    logits = op.matmul(flat, table, False, True)
    logits.output(0).set_names({"logits"})
    inputs = [ids, mask, positions, beams]
    return ov.Model([op.result(logits)], [assign_keys, assign_values], inputs, "canary")


def _input(name: str) -> Any:
    parameter = op.parameter([-1, -1], np.int64, name=name)
    parameter.output(0).set_names({name})
    return parameter


def _reshape(node: Any, shape: list[int]) -> Any:
    return op.reshape(node, _int(shape), True)


def _cached(name: str, fresh: Any, beams: Any, batch: Any) -> tuple[Any, Any]:
    """Build a stateful KV cache in the form that GenAI turns into pages."""
    empty = op.broadcast(op.constant(np.float32(0)), op.concat([batch, _int([1, 0, _WIDTH])], 0))
    shape = ov.PartialShape([-1, 1, -1, _WIDTH])
    past = op.gather(op.read_value(empty, name, np.float32, shape), beams, _int(0))
    whole = op.concat([past, fresh], 2)
    return whole, op.assign(whole, name)
