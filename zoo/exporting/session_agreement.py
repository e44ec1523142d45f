"""Agreement of sessions with torch in float32 on texts, for ``zoo bench``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from zoo.exporting.quantization.agreement import TextBatch, agreement, make_samples, summaries
from zoo.exporting.quantization.texts import read_texts, why_no_texts
from zoo.exporting.report import Agreement
from zoo.families.onnx import EMBEDDING
from zoo.inference import BACKENDS, load_session
from zoo.sentence_models.numpy_modules import pool
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference.session import Session

TEXTS = 32
FLOATS = ("float64", "float32", "float16", "bfloat16")
# The loss of quantized models that ``--backend auto`` may choose.
MAX_DROP = 0.01
LOWEST_COSINE = 0.99
ACCEPTED = (
    f"which loses more than {MAX_DROP:.0%}, or has a text with a cosine below {LOWEST_COSINE}"
)
Arrays = Mapping[str, NDArray[Any]]


def session_agreements(
    checkpoint: "Checkpoint", sessions: "Sequence[Session]"
) -> list[Agreement | None]:
    """Return how far each session agrees with float32; ``None`` where that is not known."""
    # An export in other precisions has nothing to be compared with; the search of a runtime returns
    # logits for forced targets only, which takes long
    exact = next((s for s in sessions if s.dtype == "float32" and s.backend in BACKENDS), None)
    if exact is None and checkpoint.is_export:
        return [None for _ in sessions]
    exact = exact or load_session(checkpoint, "cpu", dtype="float32")
    compared = [s for s in sessions if s.backend in BACKENDS or not checkpoint.head.has_cache]
    names = set(exact.inputs).intersection(*(session.inputs for session in compared))
    samples = [
        replace(sample, inputs={n: a for n, a in sample.inputs.items() if n in names})
        for sample in make_samples(checkpoint, read_texts(None)[:TEXTS])
    ]
    found = {id(s): _agreement(checkpoint, exact, s, samples) for s in compared}
    return [found.get(id(session)) for session in sessions]


def agrees(dtype: str, found: Agreement | None) -> bool:
    """Return whether a session of a dtype may take the place of another one."""
    if dtype in FLOATS:  # which ``measure`` compares
        return True
    if found is None:
        return False
    lowest = 1.0 if found.lowest_cosine is None else found.lowest_cosine
    return found.drop <= MAX_DROP and lowest >= LOWEST_COSINE


def _agreement(
    checkpoint: "Checkpoint", exact: "Session", session: "Session", samples: Sequence[TextBatch]
) -> Agreement:
    spec = checkpoint.onnx_spec
    pooling = checkpoint.model.pooling
    weights = checkpoint.module_weights()
    if EMBEDDING in session.outputs:
        sides = [partial(_pooled, side, pooling or Pooling()) for side in (exact, session)]
    else:
        names = [name for name in exact.outputs if name in session.outputs]
        sides = [partial(side.run, outputs=names) for side in (exact, session)]
    expected, actual = (summaries(run, samples, spec, pooling, weights) for run in sides)
    result = agreement(expected, actual, spec, checkpoint)
    result.random_tokens = why_no_texts(checkpoint) is not None
    return result


def _pooled(session: "Session", pooling: Pooling, inputs: Arrays) -> dict[str, NDArray[Any]]:
    """Return embeddings of texts."""
    if EMBEDDING in session.outputs:
        return {EMBEDDING: session.run(inputs, (EMBEDDING,))[EMBEDDING]}
    hidden = session.run(inputs, (pooling.output,))[pooling.output]
    return {EMBEDDING: pool(hidden, inputs["attention_mask"].astype(bool), pooling)}
