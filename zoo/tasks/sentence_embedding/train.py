"""Training of sentence embeddings on pairs, triplets or scored pairs of texts."""

from zoo.finetuning.embeddings.representation import Representation
from zoo.finetuning.embeddings.task import embedding_task

SENTENCE_EMBEDDING = embedding_task("sentence-embedding", Representation())
