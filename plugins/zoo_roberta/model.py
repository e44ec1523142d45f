"""RoBERTa: A Robustly Optimized BERT Pretraining Approach.

Liu et al. 2019, arXiv:1907.11692; Conneau et al. 2020, "Unsupervised Cross-lingual
Representation Learning at Scale", arXiv:1911.02116, for XLM-R; Martin et al. 2020,
arXiv:1911.03894, for CamemBERT; Goyal et al. 2021, "Larger-Scale Transformers for Multilingual
Masked Language Modeling", arXiv:2105.00572, for XLM-R XL and XXL.

BERT's architecture with other pretraining: longer, on more text, in larger batches, with masked
language modelling only, and with masks drawn anew each time (section 4). Without next sentence
prediction there is one segment type, and no objective trains the pooler. The tokenizer is
byte-level BPE, so no token is unknown; the models for other languages use SentencePiece.

Two things are the implementation's. The position of a token is its index among the tokens of its
row that are not padding, counted from ``pad_token_id + 1``; all padding has the position
``pad_token_id``. And a text is classified by the hidden state of ``<s>``, through a linear map,
tanh and a second linear map.

XLM-R XL and XXL have norms before attention and feed-forward network, one after the last block, and
none after the embeddings. Their dropout follows both parts of a block, as in fairseq; the class of
transformers has none after the feed-forward network.
"""

from typing import Any

from torch import nn

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import FairseqFactory, make_blocks, make_embeddings
from zoo.nn.transformer import CountedEmbeddings, PreNormBlock
from zoo.overrides import override
from zoo_roberta.config import RobertaConfig


class RobertaFactory(FairseqFactory):
    """The models of fairseq, with positions that do not count padding."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        padding = self.config.pad_token_id
        embeddings = make_embeddings(self.config, CountedEmbeddings, padding=padding)
        return {"embeddings": embeddings, "layers": make_blocks(self.config)}


class PreNormFactory(FairseqFactory):
    """The models of XLM-R XL and XXL, with norms in other places."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        padding = config.pad_token_id
        return {
            "embeddings": make_embeddings(config, CountedEmbeddings, norm=False, padding=padding),
            "layers": make_blocks(config, PreNormBlock),
            "final_norm": nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps),
        }


def build(config: RobertaConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    factory = PreNormFactory if config.pre_norm else RobertaFactory
    return factory(config).build(head)
