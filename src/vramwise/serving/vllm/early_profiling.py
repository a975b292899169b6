"""What profile runs of V0 hold that V1's do not: sequences made to carry images, whole towers, blocks that wait."""

from __future__ import annotations

from vramwise.models import Config, Model
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.serving.common.encoder import largest_item_tokens
from vramwise.serving.vllm.settings import Resolved
from vramwise.serving.vllm.towers import media_limits, sees_nothing
from vramwise.units import round_up

# vLLM 0.2.5 worker/worker.py profiles what the card lacks, and only 0.2.6 sets TORCH_NCCL_AVOID_RECORD_STREAMS
RECORDED_STREAMS = ((0, 2, 5), (0, 2, 6))
PADDED_PATCHES = 8  # models/mllama.py MllamaVisionModel.forward pads each tile's patches to a multiple of it
PIXEL_BYTES = 4  # multimodal inputs come in fp32


def profiled_sequences(model: Model, r: Resolved) -> int:
    """Sequences of the profile run, each of which samples one row.

    V0 makes as many as its tokens hold when each has all the images that a prompt may have (0.6.3 to 0.8.5
    worker/model_runner.py profile_run): max(1, min(max_num_seqs, tokens // (limit · tokens of an image))). Models that
    attend to images across have none of them among their tokens.
    """
    if r.profile.generation != "V0" or sees_nothing(model, r.settings) or _attends_across(model, r):
        return r.max_num_seqs
    tokens = largest_item_tokens(model) * max(1, media_limits(r.settings).get("image", 1))
    return max(1, min(r.max_num_seqs, r.batched_tokens // tokens)) if tokens else r.max_num_seqs


def cross_attention_tower(model: Model, r: Resolved) -> Node | None:
    """Llama 3.2 Vision's tower over an image of every sequence; None for other models.

    The encoder-decoder runner gives max_num_seqs sequences an image of all its tiles each (0.6.3 to 0.8.5
    worker/enc_dec_model_runner.py profile_run). Fullest in the MLP of the global layers (models/mllama.py): for a patch
    the levels that are handed on and their stack, the last layer's output, the patches as they came, the input of the
    global layers, of the layer, of its MLP's residual and the norm of that (2 · levels + 6 hidden states), the MLP's
    inner values before and after the function, the image in fp32, and a row of the mask over all patches of the image.
    """
    vision = model.config.table("vision_config")
    if vision is None or not _attends_across(model, r):
        return None
    item = r.storage.bytes_per_element
    levels = len(vision.items("intermediate_layers_indices") or ())
    side = vision.size("image_size") // vision.size("patch_size")
    of_image = vision.size("max_num_tiles", default=4) * round_up(side * side + 1, PADDED_PATCHES)
    images = r.max_num_seqs * max(1, media_limits(r.settings).get("image", 1))
    inner = vision.size("intermediate_size", default=4 * vision.size("hidden_size"))
    values = (2 * levels + 6) * vision.size("hidden_size") + 2 * inner // r.settings.tensor_parallel_size
    patch = values * item + of_image * item + _pixels(vision) * PIXEL_BYTES
    size = images * of_image * patch
    return Node(
        "profile run: encoder", size, "derived", round(0.9 * size), round(1.1 * size),
        formula="images × patches × ((2 · levels + 6) · hidden + 2 · inner + patches of an image) × dtype + pixels",
        inputs={"images": images, "patches": of_image, "levels": levels},
        source="vLLM 0.6.3 to 0.8.5 worker/enc_dec_model_runner.py profile_run, models/mllama.py",
    )  # fmt: skip


def waiting_outputs(model: Model, r: Resolved) -> tuple[Node, ...]:
    """Outputs of all-reduces that torch gives to nobody until the host has seen them end: those of a whole pass, where
    the host runs ahead of the card, and none where it does not."""
    ranks = r.settings.tensor_parallel_size
    if ranks == 1 or not RECORDED_STREAMS[0] <= r.version < RECORDED_STREAMS[1]:
        return ()
    count = 2 * model.num_layers + 1
    size = count * r.batched_tokens * model.hidden_size * r.storage.bytes_per_element
    return (
        Node("outputs that wait for all-reduces", size, "derived", 0, size,
             formula="(2 · layers + 1) × tokens × hidden size × dtype",
             inputs={"layers": model.num_layers, "tokens": r.batched_tokens},
             source="torch 2.1 ProcessGroupNCCL.cpp (record_stream), vLLM 0.2.5 worker/worker.py"),
    )  # fmt: skip


def _attends_across(model: Model, r: Resolved) -> bool:
    """Whether the encoder-decoder runner profiles the model, its images beside the text."""
    return r.profile.generation == "V0" and has_fact("vllm", "attends_across", model.config.model_type, r.version)


def _pixels(vision: Config) -> int:
    return vision.size("num_channels", "in_channels", default=3) * vision.size("patch_size") ** 2
