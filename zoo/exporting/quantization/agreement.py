"""Agreement of two graphs on text: cosine, ranking, argmax or correlation of logits, perplexity."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.data.corpus_cache import SAMPLE
from zoo.errors import NonFiniteError, UsageError
from zoo.exporting.report import Agreement, at_least_0
from zoo.exporting.validate import UNLIMITED, batches
from zoo.families.onnx import LOGITS, OnnxSpec
from zoo.families.random_inputs import random_inputs
from zoo.inference.processing.batching import collate, plan_batches
from zoo.inference.processing.inputs import read_records
from zoo.inference.processing.numbers import log_softmax
from zoo.inference.processing.similarity import LATE_INTERACTION, max_sim, similarity_matrix
from zoo.inference.validate_inputs import with_defaults
from zoo.io.files import open_regular
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
TEXTS_PER_BOOK = 4
MOST_TEXTS = 256
MOST_TOKENS = 128
MASK_EVERY = 7  # tokens, of masked language models: about 15 %
NO_TARGET = -1
PAIRED = 1  # a text is compared with the one that follows it, by cross-encoders


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


def read_texts(file: Path | None) -> list[str]:
    """Return the first lines of a file that are not blank, or a sample of the package's books."""
    if file is None:
        chosen = []
        for book in sorted(SAMPLE.glob("*.txt")):
            lines = [line for line in book.read_text("utf-8").splitlines() if 80 < len(line) < 500]
            chosen += lines[:: max(1, len(lines) // TEXTS_PER_BOOK)][:TEXTS_PER_BOOK]
        return chosen
    if not file.exists():
        raise UsageError(f"cannot read {file}: there is no such file")
    open_regular(file).close()  # a pipe could not be read several times
    records = read_records((), str(file), kind="text")
    texts = (record.text for record in records if record.text.strip())
    first = list(islice(texts, MOST_TEXTS))
    if not first:
        raise UsageError(f"{file} has no texts", "give a file with one text a line")
    return first


def make_samples(checkpoint: Checkpoint, texts: Sequence[str]) -> list[TextBatch]:
    """Return batches of texts, or of random tokens for models without a tokenizer."""
    spec = checkpoint.onnx_spec
    longest = min(MOST_TOKENS, spec.limits.get("tokens", MOST_TOKENS))
    if why_no_texts(checkpoint) is not None:
        samples = []
        for seed, tokens in enumerate(batches(spec.limits.get("tokens", UNLIMITED), (0, 0))):
            drawn = random_inputs(spec, checkpoint.config, tokens, seed=seed)
            arrays = {name: tensor.numpy() for name, tensor in drawn.items()}
            mask = arrays.get("attention_mask", next(iter(arrays.values())) * 0 + 1)
            samples.append(TextBatch(arrays, mask.reshape(len(tokens), -1) == 1))
        return samples
    tokenizer = load_text_tokenizer(checkpoint)
    if checkpoint.model.score_activation is not None:  # a cross-encoder reads pairs
        pairs = [*zip(texts, [*texts[PAIRED:], *texts[:PAIRED]], strict=True)]
        encoded = tokenizer.encode(pairs, max_tokens=longest, offsets=False)
    else:
        encoded = tokenizer.encode(texts, max_tokens=longest, offsets=False)
    lengths = [len(text.ids) for text in encoded]
    names = list(spec.inputs)
    pad = getattr(checkpoint.config, "pad_token_id", None) or 0
    samples = []
    for rows in plan_batches(lengths):
        inputs, mask = collate([encoded[row] for row in rows], names, pad)
        samples.append(_with_targets(checkpoint, spec, inputs, mask))
    return samples


def why_no_texts(checkpoint: Checkpoint) -> str | None:
    """Return why a model is compared on random tokens and not on texts; ``None`` if it is not."""
    spec = checkpoint.onnx_spec
    if any("choices" in axes for axes in spec.inputs.values()):
        return f"the head {checkpoint.head_name} reads several texts a row"
    built_in = checkpoint.family.text_tokenizer(checkpoint.config)
    if built_in is None and checkpoint.model.tokenizer is None:
        return f"{checkpoint.name} has no tokenizer"
    return None


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
    return TextBatch(complete, mask, targets if (targets != NO_TARGET).any() else None)


def summaries(
    run: Run,
    samples: Iterable[TextBatch],
    spec: OnnxSpec,
    pooling: Pooling | None = None,
    weights: "ModuleWeights | None" = None,
) -> list[Summary]:
    """Run a graph on texts, and return what is compared of its outputs."""
    single = LOGITS in spec.outputs and spec.outputs[LOGITS][-1] == 1
    found = []
    with progress("comparing", unit="texts") as advance:
        for sample in samples:
            outputs = run(sample.inputs)
            found.append(_summary(outputs, sample, pooling, weights, single=single))
            advance(len(sample.mask))
    return found


def agreement(
    expected: Sequence[Summary],
    actual: Sequence[Summary],
    spec: OnnxSpec,
    checkpoint: Checkpoint | None = None,
) -> Agreement:
    """Return the agreement of two graphs on the same texts; ``expected`` is that in float32."""
    if not all(summary.finite for summary in expected):
        raise NonFiniteError("the graph in float32 returned NaN or infinity for a text")
    pairs = list(zip(expected, actual, strict=True))
    norm = partial(np.linalg.norm, axis=1)
    products = [(a.vectors * b.vectors).sum(1) for a, b in pairs]
    norms = [np.maximum(norm(a.vectors) * norm(b.vectors), 1e-30) for a, b in pairs]
    cosines = np.concatenate(products) / np.concatenate(norms)
    # the last of them is the measure
    values: dict[str, Any] = {
        "lowest_cosine": float(cosines.min()),
        "cosine": float(cosines.mean()),
    }
    if any(summary.scores.size for summary in expected):
        values["correlation"] = correlations(_scores(expected), _scores(actual))["pearson"]
    elif any("logits" in name for name in spec.outputs):
        values["argmax"] = accuracy(
            *(np.concatenate([summary.argmax for summary in side]) for side in (expected, actual))
        )
    if checkpoint is not None and (kind := ranks_by(checkpoint)) is not None:
        ranking = rank_correlation(expected, actual, kind)
        if ranking is not None:
            finite = all(summary.finite for summary in actual)
            drop = at_least_0(1 - ranking) if finite else math.inf
            return Agreement(
                texts=len(cosines), measure="ranking", drop=drop, ranking=ranking, **values
            )
    losses = [
        -float(np.concatenate([summary.log_probs for summary in side]).mean())
        for side in (expected, actual)
        if any(summary.log_probs.size for summary in side)
    ]
    finite = all(summary.finite for summary in actual)
    if not losses:
        measure = list(values)[-1]
        drop = at_least_0(1 - values[measure]) if finite else math.inf
        return Agreement(texts=len(cosines), measure=measure, drop=drop, **values)
    before, after = losses
    return Agreement(
        texts=len(cosines),
        measure="perplexity",
        drop=at_least_0(finite_perplexity(after - before) - 1) if finite else math.inf,
        perplexity=finite_perplexity(after),
        reference=finite_perplexity(before),
        **values,
    )


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
    expected: Sequence[Summary], actual: Sequence[Summary], kind: str
) -> float | None:
    """Return how alike two graphs rank texts: Spearman's correlation, the mean over queries."""
    # Each text is a query among all others; cross-encoders rank pairs. A query whose texts are all
    # equal for ``expected`` does not count; without others, ``None`` is returned.
    if kind == "score":
        rows = [(_scores(expected), _scores(actual))]
    else:
        similarities = [_similarities(side, kind) for side in (expected, actual)]
        pairs = enumerate(zip(*similarities, strict=True))
        rows = [(np.delete(a, query), np.delete(b, query)) for query, (a, b) in pairs]
    ranked = [(a, b) for a, b in rows if len(a) and (a != a[0]).any()]
    # equal scores of ``actual`` have no rank correlation: its graph ranks nothing
    found = [0.0 if math.isnan(value := spearman(a, b)) else value for a, b in ranked]
    return float(np.mean(found)) if found else None


def embedding_summary(vectors: NDArray[Any], mask: NDArray[np.bool_]) -> Summary:
    """Return what is compared of embeddings of texts, (rows, size), or of tokens, with a mask."""
    exact = vectors.astype(np.float64)
    none = np.empty(0)
    tokens = (
        tuple(row[own] for row, own in zip(exact, mask, strict=True)) if exact.ndim == 3 else ()
    )
    rows = np.stack([text.mean(0) for text in tokens]) if tokens else exact
    finite = bool(np.isfinite(rows).all())
    return Summary(rows, none.astype(np.int64), none, none, finite=finite, token_vectors=tokens)


def embedding_agreement(
    expected: Sequence[Summary], actual: Sequence[Summary], kind: SimilarityFunction
) -> Agreement:
    """Return how alike two graphs rank texts by their embeddings; a lower cosine counts as well."""
    first, second = (np.concatenate([s.vectors for s in side]) for side in (expected, actual))
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(1) / np.maximum(norms, 1e-30)
    cosine = float(cosines.mean())
    ranking = rank_correlation(expected, actual, kind)
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


def _similarities(summaries: Sequence[Summary], kind: str) -> NDArray[np.float64]:
    """Return the similarity of all pairs of texts, (texts, texts)."""
    if kind not in LATE_INTERACTION:
        vectors = np.concatenate([summary.vectors for summary in summaries])
        return similarity_matrix(vectors, vectors, kind)  # type: ignore[arg-type]
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
    rows = first.reshape(*sample.mask.shape, -1) if by_token else first.reshape(len(first), -1)
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
            compared = zip(features.values[TOKENS], features.mask, strict=True)
            token_vectors = tuple(row[mask].astype(np.float64) for row, mask in compared)
            vectors = np.stack([text.mean(0) for text in token_vectors])
    elif by_token:
        vectors = pool(rows, sample.mask, Pooling())
    scores = (rows[sample.mask] if by_token else rows).ravel() if single else np.empty(0)
    log_probs = np.empty(0)
    if sample.targets is not None:
        kept = sample.targets != NO_TARGET
        targets = sample.targets[kept]
        log_probs = log_softmax(first[kept])[np.arange(len(targets)), targets]
    return Summary(
        vectors.astype(np.float64),
        np.concatenate([_argmax(array, sample.mask) for array in outputs.values()]),
        scores.astype(np.float64),
        log_probs,
        finite=all(
            np.isfinite(array[sample.mask] if array.shape[:2] == sample.mask.shape else array).all()
            for array in outputs.values()
        ),
        token_vectors=token_vectors,
    )


def _argmax(array: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the argmax of each token or text; logits over tokens have one per text."""
    if array.shape == mask.shape:
        array = np.where(mask, array, -np.inf)
    best: NDArray[np.int64] = array.argmax(-1)
    return best[mask] if best.shape == mask.shape else best.ravel()
