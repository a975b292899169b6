"""How transformers 5.23 runs each operation of a block: a function a kind, registered when this package is imported."""

from vramwise.models.lowerings import (
    activations as activations,
)
from vramwise.models.lowerings import (
    adapters as adapters,
)
from vramwise.models.lowerings import (
    altered_attention as altered_attention,
)
from vramwise.models.lowerings import (
    attention as attention,
)
from vramwise.models.lowerings import (
    byte_patches as byte_patches,
)
from vramwise.models.lowerings import (
    capped_experts as capped_experts,
)
from vramwise.models.lowerings import (
    chunk_scan as chunk_scan,
)
from vramwise.models.lowerings import (
    codes as codes,
)
from vramwise.models.lowerings import (
    compressed_convolution as compressed_convolution,
)
from vramwise.models.lowerings import (
    convolutions as convolutions,
)
from vramwise.models.lowerings import (
    cpmant as cpmant,
)
from vramwise.models.lowerings import (
    deberta as deberta,
)
from vramwise.models.lowerings import (
    delta_rule as delta_rule,
)
from vramwise.models.lowerings import (
    dora as dora,
)
from vramwise.models.lowerings import (
    early_attention as early_attention,
)
from vramwise.models.lowerings import (
    encoders as encoders,
)
from vramwise.models.lowerings import (
    experts as experts,
)
from vramwise.models.lowerings import (
    experts_by_modality as experts_by_modality,
)
from vramwise.models.lowerings import (
    flat_images as flat_images,
)
from vramwise.models.lowerings import (
    frames as frames,
)
from vramwise.models.lowerings import (
    gates as gates,
)
from vramwise.models.lowerings import (
    gemma as gemma,
)
from vramwise.models.lowerings import (
    hyper as hyper,
)
from vramwise.models.lowerings import (
    images as images,
)
from vramwise.models.lowerings import (
    images_before_text as images_before_text,
)
from vramwise.models.lowerings import (
    independent_streams as independent_streams,
)
from vramwise.models.lowerings import (
    inkling as inkling,
)
from vramwise.models.lowerings import (
    inkling2 as inkling2,
)
from vramwise.models.lowerings import (
    inputs as inputs,
)
from vramwise.models.lowerings import (
    kimi_delta as kimi_delta,
)
from vramwise.models.lowerings import (
    latent as latent,
)
from vramwise.models.lowerings import (
    lightning as lightning,
)
from vramwise.models.lowerings import (
    linear_recurrence as linear_recurrence,
)
from vramwise.models.lowerings import (
    losses as losses,
)
from vramwise.models.lowerings import (
    matrix_lstm as matrix_lstm,
)
from vramwise.models.lowerings import (
    mixers as mixers,
)
from vramwise.models.lowerings import (
    near_attention as near_attention,
)
from vramwise.models.lowerings import (
    ngram_streams as ngram_streams,
)
from vramwise.models.lowerings import (
    norms as norms,
)
from vramwise.models.lowerings import (
    old_attention as old_attention,
)
from vramwise.models.lowerings import (
    packed_images as packed_images,
)
from vramwise.models.lowerings import (
    padded_images as padded_images,
)
from vramwise.models.lowerings import (
    query_projectors as query_projectors,
)
from vramwise.models.lowerings import (
    relative_bias as relative_bias,
)
from vramwise.models.lowerings import (
    residual_streams as residual_streams,
)
from vramwise.models.lowerings import (
    routers as routers,
)
from vramwise.models.lowerings import (
    rwkv as rwkv,
)
from vramwise.models.lowerings import (
    sam as sam,
)
from vramwise.models.lowerings import (
    siglip as siglip,
)
from vramwise.models.lowerings import (
    simple as simple,
)
from vramwise.models.lowerings import (
    sliding_windows as sliding_windows,
)
from vramwise.models.lowerings import (
    streams as streams,
)
from vramwise.models.lowerings import (
    tiles as tiles,
)
from vramwise.models.lowerings import (
    towers as towers,
)
from vramwise.models.lowerings import (
    undescribed as undescribed,
)
from vramwise.models.lowerings import (
    whole_and_tiles as whole_and_tiles,
)
from vramwise.models.lowerings import (
    xlnet as xlnet,
)
from vramwise.models.lowerings import (
    zamba as zamba,
)
