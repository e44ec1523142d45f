"""A linear-chain conditional random field (Lafferty, McCallum and Pereira 2001, ICML)."""

import torch
from torch import Tensor

IGNORED = -100  # The label of a token that is not part of the sequence.


def gather_labelled(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions that have a label, moved to the beginning of their rows.

    Args:
        logits: (rows, tokens, labels).
        labels: (rows, tokens), int64, ``IGNORED`` for tokens without one.

    Returns:
        Logits, (rows, words, labels), and labels, (rows, words), ``IGNORED`` after the last.
    """
    has_label = labels != IGNORED
    words = max(1, int(has_label.sum(1).max()))
    order = has_label.int().argsort(dim=1, descending=True, stable=True)[:, :words]
    index = order[..., None].expand(-1, -1, logits.shape[-1])
    return logits.gather(1, index), labels.gather(1, order)


def crf_negative_log_likelihood(emissions: Tensor, labels: Tensor, transitions: Tensor) -> Tensor:
    """Return the negative log-likelihood of the labels of each row, (rows,); 0 for empty rows.

    Args:
        emissions: (rows, words, labels).
        labels: (rows, words), int64, ``IGNORED`` after the last word of a row.
        transitions: (labels + 1, labels + 1).
    """
    # The score of the labels y of a row is the sum of the emissions e[t, y_t] and of the
    # transitions between adjacent labels. The boundary of a row counts as a further label, number
    # ``labels``, so that ``transitions[labels, j]`` scores a row that begins with j, and
    # ``transitions[i, labels]`` one that ends with i. With transitions of zero, the log-likelihood
    # is as for independent labels.
    mask = labels != IGNORED
    inner = transitions[:-1, :-1]
    alpha = transitions[-1, :-1] + emissions[:, 0]
    for word in range(1, emissions.shape[1]):
        extended = torch.logsumexp(alpha[:, :, None] + inner, dim=1) + emissions[:, word]
        alpha = torch.where(mask[:, word, None], extended, alpha)
    # The logarithm of the sum of exp(score) over all labellings, (rows,).
    log_partition = torch.logsumexp(alpha + transitions[:-1, -1], dim=1)
    labels = labels.clamp(min=0)
    boundary = torch.full_like(labels[:, :1], len(transitions) - 1)
    previous_labels = torch.cat([boundary, labels[:, :-1]], dim=1)
    last_index = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
    last_labels = labels.gather(1, last_index).squeeze(1)
    label_emissions = emissions.gather(2, labels[..., None]).squeeze(2)
    scores = label_emissions + transitions[previous_labels, labels]
    path_score = (scores * mask).sum(1) + transitions[last_labels, -1]
    return (log_partition - path_score) * mask[:, 0]
