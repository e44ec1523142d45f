"""Whether two sentences are of one document, jointly with masked language modelling."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from zoo.objectives.examples.sentence_pair_data import Draw, Pair, PairGenerator
from zoo.objectives.sentence_pairs import SentencePairs

if TYPE_CHECKING:
    from zoo.data.corpus import Split


def document_pairs(split: "Split", max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield each sentence with a later one of its document, label 0, or of another, label 1.

    Args:
        split: the sentences and documents of a corpus.
        max_tokens: number of tokens that a row has for a pair; longer pairs are truncated later.
        draw: returns a uniform number in [0, 1).
    """
    # Sentence i has the tokens from sentences[i] to sentences[i + 1], and document d has the
    # sentences from documents[d] to documents[d + 1].
    sentences = split.sentences.tolist()
    documents = split.documents.tolist()
    for document in range(len(documents) - 1):
        for sentence in range(documents[document], documents[document + 1] - 1):
            if draw() < 0.5:
                first = sentence + 1
                end = documents[document + 1]
                label = 0
            else:
                other = int(draw() * (len(documents) - 2))
                other += other >= document
                first = documents[other]
                end = documents[other + 1]
                label = 1
            partner = first + int(draw() * (end - first))
            yield (
                sentences[sentence],
                sentences[sentence + 1],
                sentences[partner],
                sentences[partner + 1],
                label,
            )


class SameDocument(SentencePairs):
    """Predicts masked tokens, and whether two sentences are of one document."""

    name: ClassVar[str] = "masked-lm+same-document"
    term: ClassVar[str] = "same-document"
    make_pairs: ClassVar[PairGenerator] = staticmethod(document_pairs)
    swap: ClassVar[bool] = False
    min_documents: ClassVar[int] = 2
