"""Configs of four layers that several tests describe: a decoder alone, an encoder with a decoder."""

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 224, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip
BART = {
    "model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 512,
    "max_position_embeddings": 256,
}  # fmt: skip
