#!/usr/bin/env python3
"""Measures captions per second of many pictures through davy's ABI, with one call for each picture and with several pictures in
one call. The model has SmolVLM-256M's shape and random weights. Answers have exactly N tokens.

    DAVY_LIBRARY=build/libdavy.so.1 python3 tests/bench/gpu_captions.py [DEVICE [PICTURES [N [SIDE]]]]

SIDE: of the pictures in pixels; 512 is one tile, larger pictures are split into tiles. Needs NumPy."""
import json
import pathlib
import struct
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "hosts"), str(HERE.parent / "hosts/dialogue"), str(HERE.parents[1] / "plugins/comfy")]

from caption_host import Host  # noqa: E402
from davy import abi  # noqa: E402
from gpu_lm_peers import vocabulary  # noqa: E402

TEXT = dict(model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, head_dim=64,
            num_key_value_heads=3, vocab_size=49280, rope_theta=100000.0, max_position_embeddings=8192, rms_norm_eps=1e-5)
VISION = dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=512, patch_size=16)
SPECIAL = {"<|im_start|>": 49152, "<|im_end|>": 49154, "<fake_token_around_image>": 49189, "<image>": 49190, "<global-img>": 49151,
           "<end_of_utterance>": 49279, **{f"<row_{r}_col_{c}>": 49191 + (r - 1) * 6 + c for r in range(1, 7) for c in range(1, 7)}}


def shapes():
    """Names and shapes of all tensors."""
    h, f, kv = 576, 1536, 192
    yield "lm_head.weight", (49280, h)
    yield "model.connector.modality_projection.proj.weight", (h, 768 * 16)
    root = "model.text_model."
    yield root + "embed_tokens.weight", (49280, h)
    yield root + "norm.weight", (h,)
    for i in range(30):
        layer = f"{root}layers.{i}."
        for name, shape in (("input_layernorm", (h,)), ("post_attention_layernorm", (h,)), ("self_attn.q_proj", (h, h)),
                            ("self_attn.k_proj", (kv, h)), ("self_attn.v_proj", (kv, h)), ("self_attn.o_proj", (h, h)),
                            ("mlp.gate_proj", (f, h)), ("mlp.up_proj", (f, h)), ("mlp.down_proj", (h, f))):
            yield f"{layer}{name}.weight", shape
    root = "model.vision_model."
    yield root + "embeddings.patch_embedding.weight", (768, 3, 16, 16)
    yield root + "embeddings.patch_embedding.bias", (768,)
    yield root + "embeddings.position_embedding.weight", (1024, 768)
    yield from ((f"{root}post_layernorm.{x}", (768,)) for x in ("weight", "bias"))
    for i in range(12):
        layer = f"{root}encoder.layers.{i}."
        for name, n, k in (("self_attn.q_proj", 768, 768), ("self_attn.k_proj", 768, 768), ("self_attn.v_proj", 768, 768),
                           ("self_attn.out_proj", 768, 768), ("mlp.fc1", 3072, 768), ("mlp.fc2", 768, 3072)):
            yield f"{layer}{name}.weight", (n, k)
            yield f"{layer}{name}.bias", (n,)
        for name in ("layer_norm1", "layer_norm2"):
            yield f"{layer}{name}.weight", (768,)
            yield f"{layer}{name}.bias", (768,)


def write(folder):
    rng, header, at, parts = np.random.default_rng(0), {}, 0, []
    for name, shape in shapes():
        values = rng.standard_normal(shape, np.float32) * 0.02 if len(shape) > 1 else np.full(shape, float("norm" in name), np.float32)
        parts.append((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    config = {"model_type": "idefics3", "image_token_id": SPECIAL["<image>"], "scale_factor": 4, "tie_word_embeddings": False,
              "text_config": TEXT, "vision_config": VISION}
    picture = {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}, "do_image_splitting": True}
    for file, content in (("config.json", config), ("preprocessor_config.json", picture), ("tokenizer.json", vocabulary(49280, SPECIAL)),
                          ("tokenizer_config.json", {})):
        (folder / file).write_text(json.dumps(content))


def picture(side, seed):
    t = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3)
    t.keep = bytearray(np.random.default_rng(seed).integers(0, 255, (side, side, 3), np.uint8).tobytes())
    t.data = abi.buffer_address(t.keep)
    t.shape[0], t.shape[1], t.shape[2] = side, side, 3
    return t


def main(device="cuda", pictures="64", tokens="64", side="512"):
    n = int(pictures)
    images = [picture(int(side), i) for i in range(n)]
    params = abi.CaptionParams(max_tokens=int(tokens), max_tiles=1 if int(side) <= 512 else 0)
    with tempfile.TemporaryDirectory() as folder:
        write(pathlib.Path(folder))
        h = Host(abi.load(), folder, device.encode(), threads=0, compute=abi.Dtype.BF16)
        h.caption(images[:2], params)
        for width in 1, 8, 32, n:
            begin = time.perf_counter()
            for at in range(0, n, width):
                h.caption(images[at : at + width], params)
            print(f"{device}, {side}x{side}, {tokens} tokens, {width} a call: {n / (time.perf_counter() - begin):.1f} captions/s", flush=True)
        h.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
