"""The weights of towers over patches whose computation is not described (classes of transformers 5.24)."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.towers.known_weights import inside, norms, product, products
from vramwise.models.towers.query_former import DEFAULTS as FORMER
from vramwise.models.towers.query_former import query_former
from vramwise.models.towers.tower_design import Weight, layer_norm, with_bias

DOCLING: dict[str, object] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 512, "patch_size": 16, "num_channels": 3, "out_hidden_size": 1024, "scale_factor": 4,
    "deepstack_visual_indexes": [3, 7, 10], "use_fine_route": True,
}  # fmt: skip
HUNYUAN: dict[str, object] = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_channels": 3, "patch_size": 16,
    "spatial_merge_size": 2, "max_image_size": 2048,
}  # fmt: skip
HY4: dict[str, object] = {
    "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 40, "num_channels": 3, "patch_size": 16,
    "spatial_merge_size": 2, "max_image_size": 2048, "out_hidden_size": 6144,
}  # fmt: skip
INKLING2: dict[str, object] = {
    "hidden_size": 1024, "num_hidden_layers": 23, "num_channels": 3, "patch_size": 20, "spatial_merge_size": 2,
    "posemb_grid_size": 32, "projection_hidden_dim": 4096,
}  # fmt: skip
LFM3: dict[str, object] = {
    "hidden_size": 1024, "intermediate_size": 2560, "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "num_hidden_layers": 14, "num_attention_heads": 16, "num_key_value_heads": 8,
    "conv_kernel_size": 3,
}  # fmt: skip


def attention(c: Config, output: str = "out_proj") -> list[Weight]:
    """Four products with biases."""
    names = ("q_proj", "k_proj", "v_proj", output)
    return products([f"self_attn.{name}" for name in names], c.hidden_size, c.hidden_size)


def plain_mlp(width: int, inner: int) -> list[Weight]:
    return [*product("mlp.fc1", inner, width), *product("mlp.fc2", width, inner)]


def clip_layer(c: Config, index: int, output: str = "out_proj") -> list[Weight]:
    """CLIP's and SigLIP's."""
    return [
        *norms(("layer_norm1", "layer_norm2"), c.hidden_size), *attention(c, output),
        *plain_mlp(c.hidden_size, c.intermediate_size),
    ]  # fmt: skip


def hunyuan_layer(c: Config, index: int) -> list[Weight]:
    return clip_layer(c, index, "o_proj")


def positions(c: Config) -> list[Weight]:
    """A convolution over patches, and a table of places up to the largest image with one for the whole of it."""
    width, patch = c.hidden_size, c.size("patch_size")
    rows = (c.size("max_image_size") // patch) ** 2 + 1
    return [
        *with_bias("embeddings.patch_embedding", width, c.size("num_channels"), patch, patch),
        ("embeddings.position_embedding.weight", (rows, width)),
    ]  # fmt: skip


def hunyuan_ends(c: Config, text: int) -> list[Weight]:
    """Positions, and a merger of two convolutions, a product, and learned ends of rows and images."""
    width, side, merger = c.hidden_size, c.size("spatial_merge_size"), "patch_merger"
    return [
        *positions(c), *with_bias(f"{merger}.proj_conv", 2 * width, width, side, side),
        *with_bias(f"{merger}.proj_out", 4 * width, 2 * width, 1, 1), *product(f"{merger}.mlp", text, 4 * width),
        (f"{merger}.image_newline", (4 * width,)),
        *((f"{merger}.image_{end}", (text,)) for end in ("begin", "end", "sep")),
        (f"{merger}.before_rms.weight", (width,)), (f"{merger}.after_rms.weight", (text,)),
    ]  # fmt: skip


def hy4_ends(c: Config, text: int) -> list[Weight]:
    """Positions, and a merger of two convolutions."""
    width, side, merger, out = c.hidden_size, c.size("spatial_merge_size"), "patch_merger", c.size("out_hidden_size")
    inner = width * side**2
    return [
        *positions(c), *with_bias(f"{merger}.proj_conv", inner, width, side, side),
        *with_bias(f"{merger}.proj_out", out, inner, 1, 1), (f"{merger}.image_newline", (out,)),
        (f"{merger}.before_rms.weight", (width,)),
    ]  # fmt: skip


def inkling2_layer(c: Config, index: int) -> list[Weight]:
    width = c.hidden_size
    inner = c.size("intermediate_size", default=int(width * c.number("mlp_ratio", 4.0)))
    return [
        ("lambda_1", (width,)), ("lambda_2", (width,)), *attention(c), *plain_mlp(width, inner),
        *norms(("layernorm_before", "layernorm_after"), width),
    ]  # fmt: skip


def inkling2_ends(c: Config, text: int) -> list[Weight]:
    """Patches, a grid of places, a token of the whole image, and two products over squares of patches."""
    width, inner, bias = c.hidden_size, c.size("projection_hidden_dim"), c.flag("projector_bias")
    pixels, squares = c.size("num_channels") * c.size("patch_size") ** 2, c.size("spatial_merge_size") ** 2
    return [
        ("embeddings.class_embedding", (width,)), ("embeddings.cls_position_embedding", (width,)),
        *product("embeddings.patch_embedding", width, pixels, bias=False),
        ("embeddings.position_embedding.weight", (c.size("posemb_grid_size") ** 2, width)),
        *layer_norm("pre_layernorm", width), *product("merger.linear_1", inner, squares * width, bias),
        *product("merger.linear_2", text, inner, bias),
    ]  # fmt: skip


def lfm3_layer(c: Config, index: int) -> list[Weight]:
    """A gated convolution over the grid of patches or attention, and a gated MLP, behind norms."""
    width, kinds = c.hidden_size, c.items("layer_types")
    attends = index >= 2 and index % 2 == 0 if kinds is None else kinds[index] == "full_attention"
    d = width // c.heads_of(width)
    inner = c.intermediate_size
    found: list[Weight] = [("operator_norm.weight", (width,)), ("ffn_norm.weight", (width,))]
    found += products(("feed_forward.w1", "feed_forward.w3"), inner, width, bias=False)
    found += product("feed_forward.w2", width, inner, bias=False)
    if attends:
        keys = c.num_key_value_heads * d
        return [
            *found, *product("self_attn.q_proj", width, width, bias=False),
            *products(("self_attn.k_proj", "self_attn.v_proj"), keys, width, bias=False),
            *product("self_attn.out_proj", width, width, bias=False),
            ("self_attn.q_norm.weight", (d,)), ("self_attn.k_norm.weight", (d,)),
        ]  # fmt: skip
    side = c.size("conv_kernel_size")
    return [
        *found, *product("conv.in_proj", 3 * width, width, bias=False),
        ("conv.spatial_conv.weight", (width, 1, side, side)), *product("conv.out_proj", width, width, bias=False),
    ]  # fmt: skip


def lfm3_ends(c: Config, text: int) -> list[Weight]:
    width = c.hidden_size
    pixels = c.size("in_channels") * c.size("temporal_patch_size") * c.size("patch_size") ** 2
    return [*product("patch_embed", width, pixels, bias=False), ("embedding_norm.weight", (width,))]


def docling_route(c: Config, name: str, shuffled: int) -> list[Weight]:
    """One way through the connector: pixels shuffled, and a merger for each layer that is read besides."""
    given, out = c.hidden_size * shuffled**2, c.size("out_hidden_size")
    found = product(f"{name}.projection", out, given, bias=False)
    for i in range(len(c.items("deepstack_visual_indexes") or ())):
        merger = f"{name}.deepstack_mergers.{i}"
        found += [*layer_norm(f"{merger}.layer_norm", given), *product(f"{merger}.linear_1", out, given),
                  *product(f"{merger}.linear_2", out, out)]  # fmt: skip
    return found


def docling_ends(c: Config, text: int) -> list[Weight]:
    """SigLIP's embedding and last norm, and a connector with a coarse and a fine way."""
    width, patch, out = c.hidden_size, c.size("patch_size"), c.size("out_hidden_size")
    rows, connector = (c.size("image_size") // patch) ** 2, "connector"
    ways = docling_route(c, "coarse", c.size("scale_factor"))
    ways += docling_route(c, "fine", c.size("scale_factor") // 2) if c.flag("use_fine_route") else []
    return [
        *with_bias("embeddings.patch_embedding", width, c.size("num_channels"), patch, patch),
        ("embeddings.position_embedding.weight", (rows, width)), *layer_norm("post_layernorm", width),
        *inside(connector, [
            *layer_norm("ln_in", width), *ways, *norms(("ln_mid", "ln_out"), out),
            *product("mlp_fc2", out, out, bias=False),
        ]),
    ]  # fmt: skip


def beside(c: Config, tower: Config, text: int) -> list[Weight]:
    """What a model has between tower and language model, in a module of its own."""
    if c.has("density_router_hidden_size"):
        name, inner = "density_router", c.size("density_router_hidden_size")
        return [*product(f"{name}.att", 1, tower.hidden_size), *layer_norm(f"{name}.norm", tower.hidden_size),
                *product(f"{name}.fc1", inner, tower.hidden_size), *product(f"{name}.fc2", 1, inner)]  # fmt: skip
    if c.model_type != "lfm3_vl":
        return []
    inner, bias = c.size("projector_hidden_size", default=4096), c.flag("projector_bias", True)
    name = "multi_modal_projector"
    given = tower.hidden_size * tower.size("spatial_merge_size") ** 2
    return [
        *layer_norm(f"{name}.layer_norm", tower.hidden_size), *product(f"{name}.linear_1", inner, given, bias),
        *product(f"{name}.linear_2", text, inner, bias),
    ]  # fmt: skip


def window_former(c: Config, tower: Config, text: int) -> list[Weight]:
    """Granite 4 Vision's Q-Former over windows of patches, whose queries are the patches sampled down."""
    rate = c.text("downsample_rate").split("/")
    if len(rate) != 2 or not all(part.isdecimal() and part != "0" for part in rate):
        raise c.error(
            f'downsample_rate: expected two numbers of patches, as "4/8", got {c.text("downsample_rate"):.40}'
        )
    query, window = map(int, rate)
    width = tower.hidden_size
    one = {"num_hidden_layers": 1, "cross_attention_frequency": 1, "intermediate_size": 3072}
    given = c.table("qformer_config")
    values = {**FORMER, **(given.values if given else one)}
    former = Config({**values, "hidden_size": width, "num_attention_heads": max(width // 64, 1)}, c.model_id)
    return [
        ("query", (1, query**2, width)), ("image_positions", (1, window**2, width)), *layer_norm("norm", width),
        *inside("qformer", query_former(former, text=False, read=width)), *product("out_linear", text, width),
    ]  # fmt: skip
