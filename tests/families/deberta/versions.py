"""Small configurations of the versions of DeBERTa, and what the reference library has of them."""

from msgspec.structs import replace

from zoo_deberta import Deberta
from zoo_deberta.config import DebertaConfig

DEBERTA = Deberta()
HEADS = list(DEBERTA.heads())
# heads that the reference library implements with equal formulas
SHARED_HEADS = [h for h in HEADS if h not in ("replaced-token-detection", "pretraining")]
FIRST = DebertaConfig(
    vocab_size=101,
    hidden_size=48,
    num_layers=3,
    num_heads=4,
    intermediate_size=80,
    max_positions=40,
    key_bias=False,
    relative_attention=True,
    position_terms="c2p|p2c",
    position_biased_input=False,
    enhanced_decoder=False,
)
THIRD = replace(
    FIRST, key_bias=True, position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm"
)
SECOND = replace(THIRD, conv_kernel_size=3, conv_activation="gelu")
# of the released files with masked-LM heads; the reference has no such parameters
POSITIONS = {"deberta.embeddings.position_embeddings.weight": (40, 48)}
DISCRIMINATOR = {
    "mask_predictions.LayerNorm.weight": (48,),
    "mask_predictions.LayerNorm.bias": (48,),
    "mask_predictions.dense.weight": (48, 48),
    "mask_predictions.dense.bias": (48,),
    "mask_predictions.classifier.weight": (1, 48),
    "mask_predictions.classifier.bias": (1,),
}
VERSIONS = {"first": FIRST, "second": SECOND, "third": THIRD}
CASES = [
    (version, head)
    for version in VERSIONS
    for head in SHARED_HEADS
    if (version, head) != ("first", "multiple-choice")  # the reference has no such class
]
