"""Losses of sentence embeddings, with the conventions of sentence-transformers."""

import torch
from torch import Tensor
from torch.nn import functional as F


def cosent(first: Tensor, second: Tensor, scores: Tensor, scale: float) -> Tensor:
    """Return the loss of a batch over its pairs of pairs, a scalar.

    CoSENT (Su 2022, https://kexue.fm/archives/8847): log(1 + sum of exp(scale * (cos_i - cos_j)))
    over all i, j where pair i has a lower score, (rows,), than pair j. Embeddings are (rows,
    hidden).
    """
    cosines = scale * F.cosine_similarity(first, second)
    differences = cosines[:, None] - cosines[None, :]
    lower = scores[:, None] < scores[None, :]
    return torch.cat([cosines.new_zeros(1), differences[lower]]).logsumexp(0)


def cosine_error(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """Return the squared error of each cosine similarity, (rows,).

    Reimers and Gurevych 2019 (arXiv:1908.10084, section 3, regression objective). Embeddings are
    (rows, hidden), scores from -1 to 1, (rows,).
    """
    return (F.cosine_similarity(first, second) - scores) ** 2


def triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Return max(|a - p| - |a - n| + margin, 0) of each row, (rows,), by Euclidean distances.

    Reimers and Gurevych 2019 (arXiv:1908.10084, section 3, triplet objective).
    """
    near = torch.linalg.vector_norm(anchor - positive, dim=-1)
    far = torch.linalg.vector_norm(anchor - negative, dim=-1)
    return F.relu(near - far + margin)


def margin_error(margins: Tensor, teacher_margins: Tensor) -> Tensor:
    """Return the squared error of each margin, (rows, columns), to a teacher's.

    Hofstätter et al. 2020 (arXiv:2010.02666, section 3.2).
    """
    return (margins - teacher_margins) ** 2


def margin_divergence(margins: Tensor, teacher_margins: Tensor, temperature: float) -> Tensor:
    """Return the divergence from a teacher's probabilities of a text and its negatives, (rows,).

    Lin et al. 2020 (arXiv:2010.11386, section 3). Probabilities only depend on margins, (rows,
    columns), which are the scores of a text less those of its negatives.
    """
    student = F.log_softmax(F.pad(-margins, (1, 0)) / temperature, dim=-1)
    teacher = F.log_softmax(F.pad(-teacher_margins, (1, 0)) / temperature, dim=-1)
    divergence = F.kl_div(student, teacher, reduction="none", log_target=True).sum(-1)
    return divergence * temperature**2


def cut(vectors: Tensor, dim: int | None) -> Tensor:
    """Return the first dimensions of embeddings, of unit length, (..., dim); ``None`` for all.

    Like a Matryoshka loss (Kusupati et al. 2022, arXiv:2205.13147) in sentence-transformers.
    """
    if dim is None:
        return vectors
    return F.normalize(vectors[..., :dim], dim=-1)


def pair_features(first: Tensor, second: Tensor) -> Tensor:
    """Return (u, v, |u - v|) of two embeddings, (rows, 3 * hidden).

    Reimers and Gurevych 2019 (arXiv:1908.10084, section 3, classification objective).
    """
    return torch.cat([first, second, (first - second).abs()], dim=-1)
