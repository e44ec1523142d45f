"""Agreement of two graphs on text: cosine, ranking, argmax or correlation of logits, perplexity."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.errors import NonFiniteError, UsageError
from zoo.exporting.quantization.texts import why_no_texts
from zoo.exporting.report import Agreement, at_least_0
from zoo.exporting.validate import UNLIMITED, batches
from zoo.families.onnx import LOGITS, OnnxSpec
from zoo.families.random_inputs import random_inputs
from zoo.inference.processing.batching import collate, plan_batches
from zoo.inference.processing.numbers import log_softmax
from zoo.inference.processing.similarity import LATE_INTERACTION, max_sim, similarity_matrix
from zoo.inference.validate_inputs import with_defaults
from zoo.io.progress import progress
from zoo.metrics.classification import accuracy
from zoo.metrics.likelihood import finite_perplexity
from zoo.metrics.ranks import correlations, spearman
from zoo.sentence_models.modules import SENTENCE_VECTOR, TOKENS
from zoo.sentence_models.numpy_modules import ModuleFeatures, pool, run_modules
from zoo.sentence_models.pooling import Pooling, SimilarityFunction

if TYPE_CHECKING:
    from zoo.sentence_models.module_weights import ModuleWeights

Arrays = Mapping[str, NDArray[Any]]
Run = Callable[[Arrays], dict[str, NDArray[Any]]]
TARGET = "decoder_input_ids"
MAX_TOKENS = 128  # of a text
# One token in seven is masked for masked language models, about 15 %.
MASK_EVERY = 7
NO_TARGET = -1


@dataclass(frozen=True)
class TextBatch:
    """A batch of texts."""

    inputs: Arrays
    mask: NDArray[np.bool_]  # (rows, tokens) of the outputs: true for tokens, false for padding
    # (rows, tokens), the token to predict at each position, or ``NO_TARGET``; ``None`` if the head
    # predicts none
    targets: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Summary:
    """Values of the outputs of a batch that are compared."""

    # (rows, size), the embedding of each text, or the first output, pooled over its tokens
    vectors: NDArray[np.float64]
    argmax: NDArray[np.int64]  # argmax of each token or text
    # logit of each token or text, where it has a single one; otherwise empty
    scores: NDArray[np.float64]
    log_probs: NDArray[np.float64]  # log probability of each target
    # whether all outputs of tokens are finite; argmax and rounding can hide NaN
    finite: bool = True
    # (tokens, width) of each text, of models of late interaction
    token_vectors: tuple[NDArray[np.float64], ...] = ()


def make_samples(checkpoint: Checkpoint, texts: Sequence[str]) -> list[TextBatch]:
    """Return batches of texts, or of random tokens for models without a tokenizer."""
    if why_no_texts(checkpoint) is not None:
        return _random_samples(checkpoint)
    spec = checkpoint.onnx_spec
    max_tokens = min(MAX_TOKENS, spec.limits.get("tokens", MAX_TOKENS))
    tokenizer = load_text_tokenizer(checkpoint)
    if checkpoint.model.score_activation is not None:
        # A cross-encoder reads pairs: each text and the one that follows it.
        next_texts = [*texts[1:], *texts[:1]]
        pairs = list(zip(texts, next_texts, strict=True))
        encoded = tokenizer.encode(pairs, max_tokens=max_tokens, offsets=False)
    else:
        encoded = tokenizer.encode(texts, max_tokens=max_tokens, offsets=False)
    lengths = [len(text.ids) for text in encoded]
    names = list(spec.inputs)
    pad = getattr(checkpoint.config, "pad_token_id", None) or 0
    samples = []
    for rows in plan_batches(lengths):
        inputs, mask = collate([encoded[row] for row in rows], names, pad)
        samples.append(_with_targets(checkpoint, spec, inputs, mask))
    return samples


def _random_samples(checkpoint: Checkpoint) -> list[TextBatch]:
    """Return batches of random tokens of several shapes."""
    spec = checkpoint.onnx_spec
    samples = []
    for seed, lengths in enumerate(batches(spec.limits.get("tokens", UNLIMITED), (0, 0))):
        inputs = random_inputs(spec, checkpoint.config, lengths, seed=seed)
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        mask = arrays.get("attention_mask")
        if mask is None:
            mask = np.ones_like(next(iter(arrays.values())))
        samples.append(TextBatch(arrays, mask.reshape(len(lengths), -1) == 1))
    return samples


def _with_targets(
    checkpoint: Checkpoint, spec: OnnxSpec, inputs: Arrays, mask: NDArray[np.bool_]
) -> TextBatch:
    """Add what is predicted: the next token, the masked ones, or the second half of a text."""
    arrays = dict(inputs)
    ids = arrays[next(iter(arrays))]
    tasks = set(checkpoint.head.tasks)
    targets = np.full(mask.shape, NO_TARGET)
    if TARGET in spec.inputs:
        start = checkpoint.config.decoder_start_token_id  # type: ignore[attr-defined]
        shifted = np.concatenate([np.full_like(ids[:, :1], start), ids[:, :-1]], 1)
        arrays[TARGET] = shifted
        targets = np.where(mask, ids, NO_TARGET)
    elif checkpoint.head.has_cache:
        follows = mask[:, 1:] & mask[:, :-1]
        targets[:, :-1] = np.where(follows, ids[:, 1:], NO_TARGET)
    elif "fill-mask" in tasks and (token := load_text_tokenizer(checkpoint).mask_id) is not None:
        hidden = mask & (np.arange(mask.shape[1]) % MASK_EVERY == MASK_EVERY - 1)
        targets = np.where(hidden, ids, NO_TARGET)
        arrays[next(iter(arrays))] = np.where(hidden, token, ids)
    complete = with_defaults(arrays, spec)
    if (targets == NO_TARGET).all():
        return TextBatch(complete, mask)
    return TextBatch(complete, mask, targets)


def summaries(
    run: Run,
    samples: Iterable[TextBatch],
    spec: OnnxSpec,
    pooling: Pooling | None = None,
    weights: "ModuleWeights | None" = None,
) -> list[Summary]:
    """Run a graph on texts, and return what is compared of its outputs."""
    single = LOGITS in spec.outputs and spec.outputs[LOGITS][-1] == 1
    results = []
    with progress("comparing", unit="texts") as advance:
        for sample in samples:
            outputs = run(sample.inputs)
            results.append(_summary(outputs, sample, pooling, weights, single=single))
            advance(len(sample.mask))
    return results


def agreement(
    expected: Sequence[Summary],
    actual: Sequence[Summary],
    spec: OnnxSpec,
    checkpoint: Checkpoint | None = None,
) -> Agreement:
    """Return the agreement of two graphs on the same texts; ``expected`` is that in float32."""
    if not all(summary.finite for summary in expected):
        raise NonFiniteError("the graph in float32 returned NaN or infinity for a text")
    products = []
    norms = []
    for first, second in zip(expected, actual, strict=True):
        products.append((first.vectors * second.vectors).sum(1))
        lengths = np.linalg.norm(first.vectors, axis=1) * np.linalg.norm(second.vectors, axis=1)
        norms.append(np.maximum(lengths, 1e-30))
    cosines = np.concatenate(products) / np.concatenate(norms)
    # The last of the values is the measure.
    values: dict[str, Any] = {
        "lowest_cosine": float(cosines.min()),
        "cosine": float(cosines.mean()),
    }
    if any(summary.scores.size for summary in expected):
        values["correlation"] = correlations(_scores(expected), _scores(actual))["pearson"]
    elif any("logits" in name for name in spec.outputs):
        expected_argmax = np.concatenate([summary.argmax for summary in expected])
        actual_argmax = np.concatenate([summary.argmax for summary in actual])
        values["argmax"] = accuracy(expected_argmax, actual_argmax)
    measure = list(values)[-1]
    drop = at_least_0(1 - values[measure])
    similarity = None if checkpoint is None else ranks_by(checkpoint)
    ranking = None if similarity is None else rank_correlation(expected, actual, similarity)
    reference_loss = _mean_loss(expected)
    loss = _mean_loss(actual)
    if ranking is not None:
        measure = "ranking"
        drop = at_least_0(1 - ranking)
        values["ranking"] = ranking
    elif loss is not None and reference_loss is not None:
        measure = "perplexity"
        drop = at_least_0(finite_perplexity(loss - reference_loss) - 1)
        values["perplexity"] = finite_perplexity(loss)
        values["reference"] = finite_perplexity(reference_loss)
    if not all(summary.finite for summary in actual):
        drop = math.inf
    return Agreement(texts=len(cosines), measure=measure, drop=drop, **values)


def _mean_loss(results: Sequence[Summary]) -> float | None:
    """Return the mean negative log-probability of all targets; ``None`` without targets."""
    log_probs = np.concatenate([summary.log_probs for summary in results])
    return -float(log_probs.mean()) if log_probs.size else None


def require_different_scores(expected: Sequence[Summary]) -> None:
    """Check that scores can be correlated, where a head has a single logit."""
    scores = _scores(expected)
    if scores.size and (scores == scores[0]).all():
        raise UsageError(
            f"the scores of the {scores.size} texts are equal, which measures no correlation",
            "give --eval FILE with texts whose scores differ",
        )


def _scores(summaries: Sequence[Summary]) -> NDArray[np.float64]:
    return np.concatenate([summary.scores for summary in summaries])


def ranks_by(checkpoint: Checkpoint) -> SimilarityFunction | Literal["score"] | None:
    """Return the similarity by which a model of retrieval ranks texts; ``None`` for others."""
    # The gate of bi-encoders is the cosine, which is stricter where texts are alike.
    pooling = checkpoint.model.pooling
    if checkpoint.model.score_activation is not None:
        return "score"
    if pooling is None or pooling.model_type == "SentenceTransformer":
        return None
    return pooling.similarity_fn_name if pooling.output in checkpoint.head.outputs else None


def rank_correlation(
    expected: Sequence[Summary], actual: Sequence[Summary], similarity: str
) -> float | None:
    """Return how alike two graphs rank texts: Spearman's correlation, the mean over queries.

    Each text is a query among all others; cross-encoders rank pairs. A query whose texts are all
    equal for ``expected`` does not count.

    Args:
        expected: results of the graph in float32.
        actual: results of the other graph.
        similarity: name of a similarity of embeddings, or ``score`` for a cross-encoder.

    Returns:
        the mean correlation; ``None`` if no query counts.
    """
    rows: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    if similarity == "score":
        rows.append((_scores(expected), _scores(actual)))
    else:
        expected_rows = _similarities(expected, similarity)
        actual_rows = _similarities(actual, similarity)
        for query in range(len(expected_rows)):
            rows.append(
                (np.delete(expected_rows[query], query), np.delete(actual_rows[query], query))
            )
    correlation_values = []
    for expected_row, actual_row in rows:
        if not len(expected_row) or (expected_row == expected_row[0]).all():
            continue
        value = spearman(expected_row, actual_row)
        # Equal scores of ``actual`` have no rank correlation: its graph ranks nothing.
        correlation_values.append(0.0 if math.isnan(value) else value)
    return float(np.mean(correlation_values)) if correlation_values else None


def embedding_summary(vectors: NDArray[Any], mask: NDArray[np.bool_]) -> Summary:
    """Return what is compared of embeddings of texts, (rows, size), or of tokens, with a mask."""
    rows = vectors.astype(np.float64)
    token_vectors: tuple[NDArray[np.float64], ...] = ()
    if rows.ndim == 3:
        texts = zip(rows, mask, strict=True)
        token_vectors = tuple(text[is_token] for text, is_token in texts)
    if token_vectors:
        rows = np.stack([text.mean(0) for text in token_vectors])
    nothing = np.empty(0)  # embeddings have no logits
    return Summary(
        rows,
        nothing.astype(np.int64),
        nothing,
        nothing,
        finite=bool(np.isfinite(rows).all()),
        token_vectors=token_vectors,
    )


def embedding_agreement(
    expected: Sequence[Summary], actual: Sequence[Summary], similarity: SimilarityFunction
) -> Agreement:
    """Return how alike two graphs rank texts by their embeddings; a lower cosine counts as well."""
    first = np.concatenate([summary.vectors for summary in expected])
    second = np.concatenate([summary.vectors for summary in actual])
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(1) / np.maximum(norms, 1e-30)
    cosine = float(cosines.mean())
    ranking = rank_correlation(expected, actual, similarity)
    finite = all(summary.finite for summary in actual)
    lowest = cosine if ranking is None else min(ranking, cosine)
    return Agreement(
        texts=len(first),
        measure="cosine" if ranking is None else "ranking",
        drop=at_least_0(1 - lowest) if finite else math.inf,
        cosine=cosine,
        lowest_cosine=float(cosines.min()),
        ranking=ranking,
    )


def _similarities(summaries: Sequence[Summary], similarity: str) -> NDArray[np.float64]:
    """Return the similarity of all pairs of texts, (texts, texts)."""
    if similarity not in LATE_INTERACTION:
        vectors = np.concatenate([summary.vectors for summary in summaries])
        return similarity_matrix(vectors, vectors, similarity)  # type: ignore[arg-type]
    texts = [text for summary in summaries for text in summary.token_vectors]
    starts = np.cumsum([0, *(len(text) for text in texts[:-1])])
    tokens = np.concatenate(texts)
    return np.stack([max_sim(text, tokens, starts) for text in texts])


def _summary(
    outputs: Arrays,
    sample: TextBatch,
    pooling: Pooling | None,
    weights: "ModuleWeights | None",
    *,
    single: bool,
) -> Summary:
    name = next(iter(outputs))
    first = outputs[name].astype(np.float32, copy=False)
    by_token = first.shape[:2] == sample.mask.shape
    if by_token:
        rows = first.reshape(*sample.mask.shape, -1)
    else:
        rows = first.reshape(len(first), -1)
    vectors = rows
    token_vectors = tuple[NDArray[np.float64], ...]()
    if by_token and pooling is not None and pooling.output == name:
        ids = sample.inputs[next(iter(sample.inputs))]
        features = run_modules(
            ModuleFeatures({TOKENS: rows}, sample.mask, ids=ids), pooling, weights
        )
        if SENTENCE_VECTOR in features.values:
            vectors = features.values[SENTENCE_VECTOR][:, : pooling.truncate_dim]
        else:
            texts = zip(features.values[TOKENS], features.mask, strict=True)
            token_vectors = tuple(row[mask].astype(np.float64) for row, mask in texts)
            vectors = np.stack([text.mean(0) for text in token_vectors])
    elif by_token:
        vectors = pool(rows, sample.mask, Pooling())
    scores: NDArray[Any] = np.empty(0)
    if single:
        scores = rows[sample.mask].ravel() if by_token else rows.ravel()
    log_probs = np.empty(0)
    if sample.targets is not None:
        has_target = sample.targets != NO_TARGET
        targets = sample.targets[has_target]
        log_probs = log_softmax(first[has_target])[np.arange(len(targets)), targets]
    return Summary(
        vectors.astype(np.float64),
        np.concatenate([_argmax(array, sample.mask) for array in outputs.values()]),
        scores.astype(np.float64),
        log_probs,
        finite=all(_is_finite(array, sample.mask) for array in outputs.values()),
        token_vectors=token_vectors,
    )


def _is_finite(array: NDArray[Any], mask: NDArray[np.bool_]) -> bool:
    """Return whether an output is finite; padding does not count."""
    if array.shape[:2] == mask.shape:
        array = array[mask]
    return bool(np.isfinite(array).all())


def _argmax(array: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the argmax of each token or text; logits over tokens have one per text."""
    if array.shape == mask.shape:
        array = np.where(mask, array, -np.inf)
    best: NDArray[np.int64] = array.argmax(-1)
    return best[mask] if best.shape == mask.shape else best.ravel()
