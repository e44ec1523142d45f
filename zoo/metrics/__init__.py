"""Metrics, each declared once, for training, evaluation, distillation and export."""

# They take NumPy arrays and plain numbers. Training keeps two on the device, as sums and counts of
# micro-batches, because moving the logits of each step would cost more than the metric: the
# accuracy of ``zoo.objectives.losses.predictions`` and the area of ``zoo.objectives.losses.auc``.
#
# A new metric is a module of this package, and a line here. A plugin's is an entry point of
# ``zoo.api1.metrics``; ``zoo.plugins.metrics`` finds both by name.

from zoo.metrics.base import Metric, MetricInput, MetricSpec

GENERATED_TEXTS = "zoo.metrics.generated_texts"
METRICS = (
    MetricSpec(
        "accuracy", "fraction of predictions that are right", ("classes", "tokens", "rankings")
    ),
    MetricSpec("precision", "fraction of predicted entities that are right", ("entities",)),
    MetricSpec("recall", "fraction of entities that are predicted", ("entities",)),
    MetricSpec(
        "f1", "harmonic mean of precision and recall", ("classes", "entities", "pairs", "texts")
    ),
    MetricSpec("f1_micro", "F1 over all labels", ("label_sets",)),
    MetricSpec("f1_macro", "mean F1 of labels", ("classes", "label_sets")),
    MetricSpec("matthews_correlation", "Matthews correlation", ("classes",)),
    MetricSpec(
        "calibration_error",
        "distance between confidence and accuracy",
        ("classes",),
        greater_is_better=False,
    ),
    MetricSpec(
        "exact_match", "fraction of samples that are right in full", ("label_sets", "texts")
    ),
    MetricSpec("pearson", "correlation", ("numbers",)),
    MetricSpec("spearman", "correlation of ranks", ("numbers",)),
    MetricSpec("mse", "mean squared error", ("numbers",), greater_is_better=False),
    MetricSpec("quadratic_kappa", "agreement of ranks, by squared distances", ("classes",)),
    MetricSpec(
        "mean_absolute_error", "mean distance of ranks", ("classes",), greater_is_better=False
    ),
    MetricSpec("area_under_curve", "area under the ROC curve", ("tokens", "pairs")),
    MetricSpec("mrr", "mean reciprocal rank", ("rankings",)),
    MetricSpec(
        "ndcg_at_10",
        "discounted gain of the first 10 texts, as a fraction of the best one",
        ("rankings",),
    ),
    MetricSpec("mrr_at_10", "mean reciprocal rank, 0 after the first 10", ("rankings",)),
    MetricSpec("map", "mean precision at the ranks of the relevant texts", ("rankings",)),
    MetricSpec("map_at_100", "the same among the first 100", ("rankings",)),
    MetricSpec(
        "average_precision", "mean precision at the ranks of the positive pairs", ("pairs",)
    ),
    MetricSpec("recall_at_1", "fraction of relevant texts that are first", ("rankings",)),
    MetricSpec("recall_at_5", "fraction of relevant texts among the first 5", ("rankings",)),
    MetricSpec("recall_at_10", "fraction of relevant texts among the first 10", ("rankings",)),
    MetricSpec("recall_at_100", "fraction of relevant texts among the first 100", ("rankings",)),
    MetricSpec("loss", "mean loss", ("tokens",), greater_is_better=False),
    MetricSpec(
        "perplexity",
        "exponential of the mean negative log-likelihood of a token",
        ("tokens",),
        greater_is_better=False,
    ),
    MetricSpec(
        "bits_per_byte",
        "negative log-likelihood in bits per byte of text",
        ("tokens",),
        greater_is_better=False,
    ),
    MetricSpec(
        "rouge1", "F-measure of words, ROUGE-1", ("texts",), metric=f"{GENERATED_TEXTS}:Rouge1"
    ),
    MetricSpec(
        "rouge2",
        "F-measure of pairs of words, ROUGE-2",
        ("texts",),
        metric=f"{GENERATED_TEXTS}:Rouge2",
    ),
    MetricSpec(
        "rougeL",
        "F-measure of the longest common subsequence, ROUGE-L",
        ("texts",),
        metric=f"{GENERATED_TEXTS}:RougeL",
    ),
    MetricSpec(
        "rougeLsum",
        "the same of the sentences of a summary, which are lines",
        ("texts",),
        metric=f"{GENERATED_TEXTS}:RougeLsum",
    ),
    MetricSpec("bleu", "BLEU, from 0 to 100", ("texts",), metric=f"{GENERATED_TEXTS}:Bleu"),
    MetricSpec(
        "chrf", "F-score of character n-grams", ("texts",), metric=f"{GENERATED_TEXTS}:Chrf"
    ),
    MetricSpec(
        "ter",
        "translation edit rate",
        ("texts",),
        greater_is_better=False,
        metric=f"{GENERATED_TEXTS}:Ter",
    ),
    MetricSpec(
        "squad_exact_match",
        "fraction of texts that equal a reference, as SQuAD compares answers",
        ("texts",),
        metric=f"{GENERATED_TEXTS}:SquadExactMatch",
    ),
    MetricSpec(
        "squad_f1",
        "F1 of words, as of answers of SQuAD",
        ("texts",),
        metric=f"{GENERATED_TEXTS}:SquadF1",
    ),
    MetricSpec("similarity", "rank correlation of similarities with a teacher's", ("teacher",)),
    MetricSpec("cosine", "mean cosine with a teacher's embeddings", ("teacher",)),
    MetricSpec(
        "kl", "mean KL divergence from a teacher, in nats", ("teacher",), greater_is_better=False
    ),
)

__all__ = ["METRICS", "Metric", "MetricInput", "MetricSpec"]
