"""tiny_vlm.write(folder) writes a random SmolVLM of a few thousand parameters. Its answers are nonsense, but reproducible."""

import array
import json
import pathlib
import random
import struct
import sys

HIDDEN, FFN, VISION = 64, 96, 32
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<global-img>", "<fake_token_around_image>", "<image>",
           "<end_of_utterance>"] + [f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]


def byte_letters():
    """The character for each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, spare = {}, 256
    for byte in range(256):
        letters[byte] = chr(byte if byte in plain else spare)
        spare += byte not in plain
    return letters


def tokenizer(special=SPECIAL):
    vocab = {token: i for i, token in enumerate(special)}
    for letter in byte_letters().values():
        vocab[letter] = len(vocab)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return vocab, {
        "version": "1.0",
        "added_tokens": [{"id": vocab[token], "content": token, **flags} for token in special],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": {**level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "vocab": vocab, "merges": []},
    }


def shapes(vocab):
    yield "model.text_model.embed_tokens.weight", (vocab, HIDDEN)
    yield "model.text_model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (vocab, HIDDEN)
    for i in range(2):
        block = f"model.text_model.layers.{i}."
        yield block + "input_layernorm.weight", (HIDDEN,)
        yield block + "post_attention_layernorm.weight", (HIDDEN,)
        for name, n in ("q", HIDDEN), ("k", 32), ("v", 32), ("o", HIDDEN):
            yield f"{block}self_attn.{name}_proj.weight", (n, HIDDEN)
        for name, n, k in ("gate", FFN, HIDDEN), ("up", FFN, HIDDEN), ("down", HIDDEN, FFN):
            yield f"{block}mlp.{name}_proj.weight", (n, k)
    tower = "model.vision_model."
    yield tower + "embeddings.patch_embedding.weight", (VISION, 3, 8, 8)
    yield tower + "embeddings.patch_embedding.bias", (VISION,)
    yield tower + "embeddings.position_embedding.weight", (16, VISION)
    block = tower + "encoder.layers.0."
    for norm in tower + "post_layernorm", block + "layer_norm1", block + "layer_norm2":
        yield norm + ".weight", (VISION,)
        yield norm + ".bias", (VISION,)
    for name, n, k in [(f"self_attn.{x}", VISION, VISION) for x in ("q_proj", "k_proj", "v_proj", "out_proj")] + [
        ("mlp.fc1", 48, VISION), ("mlp.fc2", VISION, 48)
    ]:
        yield f"{block}{name}.weight", (n, k)
        yield f"{block}{name}.bias", (n,)
    yield "model.connector.modality_projection.proj.weight", (HIDDEN, 4 * VISION)


def qwen_shapes(vocab):
    yield from ((n.replace("text_model.", ""), s) for n, s in shapes(vocab) if "vision" not in n and "connector" not in n)
    for i in range(2):
        for name, n in ("q", HIDDEN), ("k", 32), ("v", 32):
            yield f"model.layers.{i}.self_attn.{name}_proj.bias", (n,)
    yield "visual.patch_embed.proj.weight", (VISION, 3, 2, 4, 4)
    block = "visual.blocks.0."
    for norm in block + "norm1", block + "norm2", "visual.merger.ln_q":
        yield norm + ".weight", (VISION,)
        yield norm + ".bias", (VISION,)
    for name, n, k in (
        (block + "attn.qkv", 3 * VISION, VISION), (block + "attn.proj", VISION, VISION), (block + "mlp.fc1", 4 * VISION, VISION),
        (block + "mlp.fc2", VISION, 4 * VISION), ("visual.merger.mlp.0", 4 * VISION, 4 * VISION),
        ("visual.merger.mlp.2", HIDDEN, 4 * VISION),
    ):
        yield name + ".weight", (n, k)
        yield name + ".bias", (n,)


THOUGHTS = [f"t{i}" for i in range(300)]


def qwen3_shapes(vocab):
    for n, s in shapes(vocab):
        if "vision" not in n and "connector" not in n:
            yield n.replace("text_model.", "language_model."), s
    for i in range(2):
        for name in "q_norm", "k_norm":
            yield f"model.language_model.layers.{i}.self_attn.{name}.weight", (32,)
    tower = "model.visual."
    yield tower + "patch_embed.proj.weight", (VISION, 3, 2, 4, 4)
    yield tower + "patch_embed.proj.bias", (VISION,)
    yield tower + "pos_embed.weight", (16, VISION)
    block = tower + "blocks.0."
    for norm in block + "norm1", block + "norm2", tower + "merger.norm":
        yield norm + ".weight", (VISION,)
        yield norm + ".bias", (VISION,)
    for name, n, k in (
        (block + "attn.qkv", 3 * VISION, VISION), (block + "attn.proj", VISION, VISION), (block + "mlp.linear_fc1", 48, VISION),
        (block + "mlp.linear_fc2", VISION, 48), (tower + "merger.linear_fc1", 4 * VISION, 4 * VISION),
        (tower + "merger.linear_fc2", HIDDEN, 4 * VISION),
    ):
        yield name + ".weight", (n, k)
        yield name + ".bias", (n,)


def save(folder, vocab, of_shapes, made=None):
    r = random.Random(5)
    header, blob = {}, bytearray()
    for name, shape in of_shapes(len(vocab)):
        count = inputs = 1
        for i, side in enumerate(shape):
            count *= side
            inputs *= side if i > 0 else 1
        norm = len(shape) == 1 and name.endswith("weight")
        spread = 1.0 if "embed_tokens" in name else (3.0 / inputs) ** 0.5 if len(shape) > 1 else 0.1
        data = made(name, count) if made else None
        data = data or array.array("f", ((1.0 if norm else 0.0) + r.uniform(-spread, spread) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(blob), len(blob) + 4 * count]}
        blob += data.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)


def write_qwen(folder):
    """A Qwen2-VL of the same kind, for videos: its stills and frames have the same size."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    vocab, tokens = tokenizer(special)
    save(folder, vocab, qwen_shapes)
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    config = {
        "model_type": "qwen2_vl", "image_token_id": vocab["<|image_pad|>"], "video_token_id": vocab["<|video_pad|>"],
        "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "vocab_size": len(vocab), "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        "vision_config": {"depth": 1, "embed_dim": VISION, "hidden_size": HIDDEN, "num_heads": 2, "mlp_ratio": 4, "patch_size": 4},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({"min_pixels": 768, "max_pixels": 768}))
    size = {"size": {"shortest_edge": 768, "longest_edge": 768}, "fps": 2}
    (folder / "video_preprocessor_config.json").write_text(json.dumps(size))
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 5.0, "top_k": 40, "repetition_penalty": 1.3}))
    return folder


def write_thinking(folder):
    """A Qwen3-VL whose layers add nothing, so each token depends only on the one before. Its thoughts are t0 to t299; then it
    answers "Yes" and ends."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    vocab, tokens = tokenizer(special)
    for thought in THOUGHTS:
        vocab[thought] = len(vocab)
    r = random.Random(5)
    rows = [[r.choice((-1.0, 1.0)) for _ in range(HIDDEN)] for _ in vocab]
    says = [[0.0] * HIDDEN for _ in vocab]
    chain = [byte_letters()[10], *THOUGHTS, *"</think>Yes", "<|im_end|>"]
    for token, following in zip(chain, chain[1:]):
        says[vocab[following]] = rows[vocab[token]]

    def made(name, count):
        if "embed_tokens" in name or "lm_head" in name:
            return array.array("f", sum(rows if "embed_tokens" in name else says, []))
        if "language_model" in name and "norm" in name:
            return array.array("f", [1.0] * count)
        return array.array("f", [0.0] * count) if "o_proj" in name or "down_proj" in name else None

    save(folder, vocab, qwen3_shapes, made)
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    config = {
        "model_type": "qwen3_vl", "image_token_id": vocab["<|image_pad|>"], "video_token_id": vocab["<|video_pad|>"],
        "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 32, "vocab_size": len(vocab), "max_position_embeddings": 1024,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": {"mrope_section": [6, 5, 5], "mrope_interleaved": True},
        },
        "vision_config": {
            "hidden_size": VISION, "out_hidden_size": HIDDEN, "intermediate_size": 48, "num_heads": 2, "depth": 1, "patch_size": 4,
            "num_position_embeddings": 16, "deepstack_visual_indexes": [],
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"shortest_edge": 256, "longest_edge": 1024}}))
    (folder / "chat_template.jinja").write_text("{{- '<|im_start|>assistant\\n<think>\\n' }}")
    return folder


def write(folder, max_positions=512):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocab, tokens = tokenizer()
    save(folder, vocab, shapes)
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    config = {
        "model_type": "idefics3", "image_token_id": vocab["<image>"], "scale_factor": 2, "tie_word_embeddings": False,
        "text_config": {
            "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": len(vocab),
            "max_position_embeddings": max_positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        },
        "vision_config": {
            "hidden_size": VISION, "image_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
            "num_hidden_layers": 1, "patch_size": 8,
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    picture = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}, "do_image_splitting": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(picture))
    return folder


if __name__ == "__main__":
    write_qwen(sys.argv[1])
    print("1 passed, 0 failed")
