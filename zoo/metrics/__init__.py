"""Metrics, each defined once, for training, evaluation, distillation and export."""

# They take NumPy arrays and plain numbers. Training keeps two on the device, as sums and counts of
# micro-batches, because moving the logits of each step would cost more than the metric: the
# accuracy of ``zoo.objectives.losses.predictions`` and the area of ``zoo.objectives.losses.auc``.
#
# The table tells which metrics are better when lower. A new metric is a function in a module of
# this package, and a line here.

from typing import NamedTuple


class Metric(NamedTuple):
    """A line of the table of metrics."""

    name: str
    summary: str
    greater_is_better: bool = True


METRICS = (
    Metric("accuracy", "fraction of predictions that are right"),
    Metric("precision", "fraction of predicted entities that are right"),
    Metric("recall", "fraction of entities that are predicted"),
    Metric("f1", "harmonic mean of precision and recall"),
    Metric("f1_micro", "F1 over all labels"),
    Metric("f1_macro", "mean F1 of labels"),
    Metric("matthews_correlation", "Matthews correlation"),
    Metric("calibration_error", "distance between confidence and accuracy", False),
    Metric("exact_match", "fraction of samples that are right in full"),
    Metric("pearson", "correlation"),
    Metric("spearman", "correlation of ranks"),
    Metric("mse", "mean squared error", False),
    Metric("quadratic_kappa", "agreement of ranks, by squared distances"),
    Metric("mean_absolute_error", "mean distance of ranks", False),
    Metric("area_under_curve", "area under the ROC curve"),
    Metric("mrr", "mean reciprocal rank"),
    Metric("ndcg_at_10", "discounted gain of the first 10 texts, as a fraction of the best one"),
    Metric("mrr_at_10", "mean reciprocal rank, 0 after the first 10"),
    Metric("map", "mean precision at the ranks of the relevant texts"),
    Metric("map_at_100", "the same among the first 100"),
    Metric("average_precision", "mean precision at the ranks of the positive pairs"),
    Metric("recall_at_1", "fraction of relevant texts that are first"),
    Metric("recall_at_5", "fraction of relevant texts among the first 5"),
    Metric("recall_at_10", "fraction of relevant texts among the first 10"),
    Metric("recall_at_100", "fraction of relevant texts among the first 100"),
    Metric("loss", "mean loss", False),
    Metric("perplexity", "exponential of the mean negative log-likelihood of a token", False),
    Metric("bits_per_byte", "negative log-likelihood in bits per byte of text", False),
    Metric("similarity", "rank correlation of similarities with a teacher's"),
    Metric("cosine", "mean cosine with a teacher's embeddings"),
    Metric("kl", "mean KL divergence from a teacher, in nats", False),
)
LOWER_IS_BETTER = tuple(metric.name for metric in METRICS if not metric.greater_is_better)
