#!/usr/bin/env python3
"""Makes the golden cases vlm_nanochat, vlm_ghostvis, vlm_*_video and vlm_*_k in cases/ beside this file. Weights are random,
from a manifest. PyTorch and transformers' own classes compute the expected numbers: NanoChat, CLIP's vision tower, Qwen's VL
models with a video, and SmolVLM and Qwen2.5-VL with K-quants that gguf-py reads back. No library has GhostVis's decoder,
resampler and projector: this file implements them.

    python3 tests/golden/make_captions.py

Needs torch, transformers >= 5 and gguf."""
import json
import pathlib
import re
import tempfile

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForImageTextToText, CLIPVisionConfig, CLIPVisionModel, NanoChatConfig,
                          NanoChatForCausalLM)

import gguf_pair
import weights

CASES = pathlib.Path(__file__).resolve().parent / "cases"
STEPS = 12
EPS = torch.finfo(torch.float32).eps  # the default of torch's rms_norm


class Manifest:
    def __init__(self, seed):
        self.seed, self.tensors = seed, []

    def add(self, name, *shape, rule=None):
        scale = rule or ["uniform", round(float(np.sqrt(3.0 / shape[-1])), 8)]
        self.tensors.append({"name": name, "shape": list(shape), "dtype": "F32", "rule": scale})

    def linear(self, name, n, k, bias=True):
        self.add(name + ".weight", n, k)
        if bias:
            self.add(name + ".bias", n, rule=["uniform", 0.1])

    def norm(self, name, n):
        self.add(name + ".weight", n, rule=["around", 1.0, 0.1])
        self.add(name + ".bias", n, rule=["uniform", 0.1])


def write(name, manifest, config, case, inputs=None):
    folder = CASES / name
    folder.mkdir(exist_ok=True)
    files = [{"path": "model.safetensors", "tensors": sorted(manifest.tensors, key=lambda t: t["name"])}]
    if inputs:
        files.append({"path": "inputs.safetensors", "seed": manifest.seed + 1, "tensors": inputs})
    (folder / "manifest.json").write_text(json.dumps({"seed": manifest.seed, "files": files, "json": {"config.json": config}},
                                                     separators=(",", ":")))
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    with tempfile.TemporaryDirectory() as out:
        weights.main(folder, out)
        tensors = load_file(pathlib.Path(out) / "model.safetensors")
        pixels = load_file(pathlib.Path(out) / "inputs.safetensors")["pixel_values"] if inputs else None
    return folder, tensors, pixels


def expect(folder, logits_of, start, extra):
    """Greedy ids; the given function maps a list of ids to all logits."""
    ids, gaps, generated, first = list(start), [], [], None
    for _ in range(STEPS):
        logits = logits_of(ids)[-1]
        first = logits if first is None else first
        top = logits.topk(2)
        gaps.append(float(top.values[0] - top.values[1]))
        generated.append(int(top.indices[0]))
        ids.append(generated[-1])
    save_file({"first_logits": first[None].contiguous(), "generated_ids": torch.tensor(generated, dtype=torch.int32),
               "top2_gap": torch.tensor(gaps, dtype=torch.float32), **extra}, folder / "expected.safetensors")
    print(folder.name, generated, [round(g, 3) for g in gaps])


def nanochat():
    """The case of transformers' class, in the names of a Hugging Face folder."""
    hidden, ffn, layers, heads, vocab = 128, 512, 3, 4, 512
    config = {"model_type": "nanochat", "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": vocab,
              "max_position_embeddings": 256, "hidden_act": "relu2", "final_logit_softcapping": 15.0,
              "rms_norm_eps": 1e-6, "attention_bias": False, "tie_word_embeddings": False,
              "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "eos_token_id": 1, "bos_token_id": 0}
    m = Manifest(61)
    m.add("model.embed_tokens.weight", vocab, hidden, rule=["uniform", 1.0])
    m.add("lm_head.weight", vocab, hidden)
    for i in range(layers):
        for name in ("q", "k", "v", "o"):
            m.linear(f"model.layers.{i}.self_attn.{name}_proj", hidden, hidden, bias=False)
        m.linear(f"model.layers.{i}.mlp.fc1", ffn, hidden, bias=False)
        m.linear(f"model.layers.{i}.mlp.fc2", hidden, ffn, bias=False)
    ids = [0, 17, 311, 42, 99, 400, 23, 5, 311, 250, 8, 77, 301, 12]
    case = {"task": "vlm", "model": "model.safetensors", "config": "config.json", "input_ids": ids,
            "note": "nanochat of 2025 as transformers has it, text alone"}
    folder, tensors, _ = write("vlm_nanochat", m, config, case)
    model = NanoChatForCausalLM(NanoChatConfig(**config)).eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected and not missing, (missing, unexpected)
    expect(folder, lambda x: model(torch.tensor([x])).logits[0], ids, {})


TEXT = dict(n_embd=128, n_head=4, n_kv_head=2, n_layer=2, intermediate_size=345, vocab_size=512)
SIGHT = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, image_size=56, patch_size=14)
QUERIES, DEPTH, RESAMPLER_HEADS, PROJECTOR = 8, 2, 2, 96


def ghostvis_manifest():
    m = Manifest(62)
    width, ffn, kv = TEXT["n_embd"], TEXT["intermediate_size"], TEXT["n_embd"] // 2
    m.add("transformer.wte.weight", TEXT["vocab_size"], width, rule=["uniform", 1.0])
    m.add("lm_head.weight", TEXT["vocab_size"], width)
    for i in range(TEXT["n_layer"]):
        h = f"transformer.h.{i}."
        m.linear(h + "attn.c_q", width, width)
        m.linear(h + "attn.c_k", kv, width)
        m.linear(h + "attn.c_v", kv, width)
        m.linear(h + "attn.c_proj", width, width, bias=False)
        m.linear(h + "mlp.c_gate", ffn, width, bias=False)
        m.linear(h + "mlp.c_up", ffn, width, bias=False)
        m.linear(h + "mlp.c_proj", width, ffn, bias=False)
    sight, wide, side = SIGHT["hidden_size"], SIGHT["intermediate_size"], SIGHT["image_size"] // SIGHT["patch_size"]
    root = "vision_encoder.encoder.vision_model."
    m.add(root + "embeddings.class_embedding", sight, rule=["uniform", 0.5])
    m.add(root + "embeddings.patch_embedding.weight", sight, 3, SIGHT["patch_size"], SIGHT["patch_size"], rule=["uniform", 0.07])
    m.add(root + "embeddings.position_embedding.weight", side * side + 1, sight, rule=["uniform", 0.5])
    m.norm(root + "pre_layrnorm", sight)
    m.norm(root + "post_layernorm", sight)
    for i in range(SIGHT["num_hidden_layers"]):
        layer = f"{root}encoder.layers.{i}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            m.linear(layer + "self_attn." + name, sight, sight)
        m.norm(layer + "layer_norm1", sight)
        m.norm(layer + "layer_norm2", sight)
        m.linear(layer + "mlp.fc1", wide, sight)
        m.linear(layer + "mlp.fc2", sight, wide)
    m.add("vision_resampler.queries", 1, QUERIES, sight, rule=["uniform", 0.5])
    for i in range(DEPTH):
        layer = f"vision_resampler.layers.{i}."
        m.norm(layer + "norm1", sight)
        m.norm(layer + "norm2", sight)
        m.add(layer + "cross_attn.in_proj_weight", 3 * sight, sight)
        m.add(layer + "cross_attn.in_proj_bias", 3 * sight, rule=["uniform", 0.1])
        m.linear(layer + "cross_attn.out_proj", sight, sight)
        m.linear(layer + "mlp.0", 4 * sight, sight)
        m.linear(layer + "mlp.2", sight, 4 * sight)
    m.linear("vision_projector.mlp.0", PROJECTOR, sight)
    m.linear("vision_projector.mlp.3", width, PROJECTOR)
    m.norm("vision_projector.mlp.4", width)
    return m


def below(tensors, prefix):
    return {k[len(prefix):]: v for k, v in tensors.items() if k.startswith(prefix)}


def look(tensors, pixels):
    clip = CLIPVisionModel(CLIPVisionConfig(**SIGHT, hidden_act="quick_gelu")).eval()
    own = next(iter(clip.state_dict()))
    prefix = "vision_encoder.encoder." + ("" if own.startswith("vision_model.") else "vision_model.")
    missing, unexpected = clip.load_state_dict(below(tensors, prefix), strict=False)
    assert not unexpected and not [m for m in missing if "position_ids" not in m], (missing, unexpected)
    rows = clip(pixel_values=pixels).last_hidden_state
    x = tensors["vision_resampler.queries"]
    for i in range(DEPTH):
        w = below(tensors, f"vision_resampler.layers.{i}.")
        attention = torch.nn.MultiheadAttention(x.shape[-1], RESAMPLER_HEADS, batch_first=True).eval()
        attention.load_state_dict(below(w, "cross_attn."))
        x = x + attention(F.layer_norm(x, x.shape[-1:], w["norm1.weight"], w["norm1.bias"]), rows, rows)[0]
        y = F.layer_norm(x, x.shape[-1:], w["norm2.weight"], w["norm2.bias"])
        x = x + F.linear(F.gelu(F.linear(y, w["mlp.0.weight"], w["mlp.0.bias"])), w["mlp.2.weight"], w["mlp.2.bias"])
    w = below(tensors, "vision_projector.mlp.")
    x = F.linear(F.gelu(F.linear(x, w["0.weight"], w["0.bias"])), w["3.weight"], w["3.bias"])
    return F.layer_norm(x, x.shape[-1:], w["4.weight"], w["4.bias"])[0]


def turn(x):
    """A rotation in the direction opposite to Llama's; then each head is normalised. x: [heads][tokens][size]."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * frequency
    a, b = x[..., :half], x[..., half:]
    y = torch.cat((a * angle.cos() + b * angle.sin(), b * angle.cos() - a * angle.sin()), -1)
    return F.rms_norm(y, y.shape[-1:], eps=EPS)


def speak(tensors, vectors, ids):
    """All logits after the vectors and then the ids, which include placeholders."""
    heads, kv, size = TEXT["n_head"], TEXT["n_kv_head"], TEXT["n_embd"] // TEXT["n_head"]
    x = torch.cat((vectors, tensors["transformer.wte.weight"][torch.tensor(ids)]))
    norm = lambda y: F.rms_norm(y, y.shape[-1:], eps=EPS)
    x = norm(x)
    for i in range(TEXT["n_layer"]):
        w = below(tensors, f"transformer.h.{i}.")
        split = lambda name, n: F.linear(norm(x), w[f"attn.{name}.weight"], w[f"attn.{name}.bias"]).view(-1, n, size).transpose(0, 1)
        q, k, v = turn(split("c_q", heads)), turn(split("c_k", kv)), split("c_v", kv)
        k, v = k.repeat_interleave(heads // kv, 0), v.repeat_interleave(heads // kv, 0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(x.shape)
        x = x + F.linear(mixed, w["attn.c_proj.weight"])
        y = norm(x)
        x = x + F.linear(F.silu(F.linear(y, w["mlp.c_gate.weight"])) * F.linear(y, w["mlp.c_up.weight"]), w["mlp.c_proj.weight"])
    z = F.linear(norm(x), tensors["lm_head.weight"])
    return 15 * torch.tanh(z / 15)


def ghostvis():
    image = 509
    config = {"model_config": {**TEXT, "sequence_len": 256, "mlp_type": "swiglu", "attention_bias": True, "rope_theta": 10000.0,
                               "vision_encoder_name": "clip_vit_l14", "vision_image_size": SIGHT["image_size"],
                               "vision_num_tokens": QUERIES, "vision_resampler_depth": DEPTH,
                               "vision_resampler_heads": RESAMPLER_HEADS, "vision_proj_hidden": PROJECTOR,
                               "image_token_id": image, "vision_config": SIGHT}}
    prompt = [500, 501] + [image] * QUERIES + [44, 210, 7, 399, 12, 502, 503]
    side = SIGHT["image_size"]
    case = {"task": "vlm", "model": "model.safetensors", "config": "config.json", "inputs": "inputs.safetensors",
            "input_ids": [image] * QUERIES + prompt,
            "note": "nanovision's decoder, resampler and projector behind CLIP's tower: the vectors stand before the prompt, "
                    "whose own placeholders are words"}
    inputs = [{"name": "pixel_values", "shape": [1, 3, side, side], "dtype": "F32", "rule": ["uniform", 2.0]}]
    folder, tensors, pixels = write("vlm_ghostvis", ghostvis_manifest(), config, case, inputs)
    vectors = look(tensors, pixels)
    expect(folder, lambda x: speak(tensors, vectors, x), prompt, {"image_features": vectors.contiguous()})


TALK = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "vocab_size": 256, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
QWENS = {  # vision, sections, how a video is written
    "qwen2_vl": ({"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 4, "patch_size": 4}, [4, 6, 6]),
    "qwen2_5_vl": ({"depth": 2, "hidden_size": 32, "out_hidden_size": 64, "intermediate_size": 48, "num_heads": 2, "patch_size": 4,
                    "window_size": 16, "fullatt_block_indexes": [1], "tokens_per_second": 2}, [4, 6, 6]),
    "qwen3_vl": ({"depth": 2, "hidden_size": 32, "out_hidden_size": 64, "intermediate_size": 48, "num_heads": 2, "patch_size": 4,
                  "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}, [6, 5, 5]),
}
VIDEO, START, END, FRAMES, ROWS, COLS, STEP = 250, 251, 252, 3, 6, 8, 1.5


def rule_of(name, tensor):
    if tensor.ndim > 1:
        inputs = tensor[0].numel()
        return ["uniform", 1.0 if "embed" in name and "patch" not in name else round(float(np.sqrt(3.0 / inputs)), 8)]
    return ["around", 1.0, 0.1] if name.endswith("weight") else ["uniform", 0.1]


def watch(kind):
    """A video of three time steps before a question. Qwen3 has a span for each step, with its time before it."""
    vision, sections = QWENS[kind]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections, "mrope_interleaved": kind == "qwen3_vl"}
    config = {"model_type": kind, "video_token_id": VIDEO, "image_token_id": 249, "vision_start_token_id": START,
              "vision_end_token_id": END, "tie_word_embeddings": False, "text_config": {**TALK, "rope_parameters": rope},
              "vision_config": {**vision, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3}}
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**config)).eval()
    m = Manifest(70 + len(kind))
    for name, tensor in model.state_dict().items():
        m.add(name, *tensor.shape, rule=rule_of(name, tensor))
    each = ROWS * COLS // 4
    spans = [[START] + [VIDEO] * each + [END]] * FRAMES if kind == "qwen3_vl" else [[START] + [VIDEO] * each * FRAMES + [END]]
    ids = [7, 8] + [x for i, span in enumerate(spans) for x in [20 + i, 30] + span] + [9, 10, 11, 12]
    case = {"task": "vlm", "model": "model.safetensors", "config": "config.json", "inputs": "inputs.safetensors",
            "input_ids": ids, "video_grid_thw": [FRAMES, ROWS, COLS], "second_per_grid": STEP, "note": kind + " with a video"}
    values = 3 * 2 * vision["patch_size"] ** 2
    inputs = [{"name": "pixel_values", "shape": [FRAMES * ROWS * COLS, values], "dtype": "F32", "rule": ["uniform", 2.0]}]
    folder, tensors, pixels = write(f"vlm_{kind}_video", m, config, case, inputs)
    model.load_state_dict(tensors)
    grid = torch.tensor([[FRAMES, ROWS, COLS]])
    types = lambda x: torch.tensor([[2 if i == VIDEO else 0 for i in x]])
    more = {"second_per_grid_ts": torch.tensor([STEP])} if kind == "qwen2_5_vl" else {}
    said = lambda x: model(input_ids=torch.tensor([x]), pixel_values_videos=pixels, video_grid_thw=grid,
                           mm_token_type_ids=types(x), **more).logits[0]
    vectors = model.model.get_video_features(pixels, grid)
    vectors = vectors.pooler_output if hasattr(vectors, "pooler_output") else vectors[0] if kind == "qwen3_vl" else vectors
    expect(folder, said, ids, {"image_features": torch.cat(list(vectors)).contiguous()})


WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "head_dim": 64, "vocab_size": 256, "max_position_embeddings": 512, "hidden_act": "silu"}  # blocks of 256
SEEN = 250
K_QUANTS = {
    "smolvlm": {"scale_factor": 2, "text_config": {"model_type": "llama", **WIDE, "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
                "vision_config": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
                                  "image_size": 32, "patch_size": 8, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}},
    "qwen2_5_vl": {"vision_start_token_id": 251, "vision_end_token_id": 252,
                   "text_config": {**WIDE, "rms_norm_eps": 1e-6, "rope_parameters": {
                       "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12]}},
                   "vision_config": {"depth": 2, "hidden_size": 256, "out_hidden_size": 256, "intermediate_size": 512, "num_heads": 4, "hidden_act": "silu",
                                     "patch_size": 8, "window_size": 32, "fullatt_block_indexes": [1], "spatial_merge_size": 2,
                                     "temporal_patch_size": 2, "in_channels": 3}},
}


def read_back(pair, name, shape):
    """A tensor of the folder, read back from the pair of GGUF files."""
    pair.texts, pair.visions = [], []
    pair.place(name, ("F32", np.zeros(shape, "<f4")))
    parts = []
    for stored, kind, x in pair.texts + pair.visions:
        raw = pair.stored[stored]
        parts.append(gguf.quants.dequantize(raw[1], raw[0]) if kind in gguf_pair.BLOCKS else raw[1].astype("<f4"))
    if len(parts) == 2:
        return np.stack([p.reshape(shape[0], shape[1], *shape[3:]) for p in parts], 2)
    x = np.concatenate([p.reshape(-1, *shape[1:]) for p in parts])
    if pair.arch == "llama" and pair.texts and re.search(r"self_attn\.[qk]_proj", name):
        x = x.reshape(pair.text["num_attention_heads"], -1, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
    return x


def quantised(kind):
    """The expected numbers use the weights that gguf-py reads from gguf_pair.py's blocks."""
    more = {"image_token_id": SEEN, "video_token_id": 249, "tie_word_embeddings": False}
    config = {"model_type": kind, **more, **K_QUANTS[kind]}
    if kind == "smolvlm":
        config.pop("video_token_id")
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**config), attn_implementation="eager").eval()
    m = Manifest(90 + len(kind))
    for name, tensor in model.state_dict().items():
        m.add(name, *tensor.shape, rule=rule_of(name, tensor))
    side, frame = K_QUANTS[kind]["vision_config"].get("image_size"), [START] if kind == "qwen2_5_vl" else [7]
    shape = [1, 2, 3, side, side] if side else [6 * 8, 3 * 2 * 8 * 8]
    ids = [5, 8] + frame + [SEEN] * (2 * 4 if side else 12) + [END if not side else 6, 9, 10, 11, 12]
    case = {"task": "vlm", "model": "model.safetensors", "config": "config.json", "inputs": "inputs.safetensors", "input_ids": ids,
            "note": kind + " in Q4_K, Q5_K and Q6_K"}
    if not side:
        case["image_grid_thw"] = [1, 6, 8]
    inputs = [{"name": "pixel_values", "shape": shape, "dtype": "F32", "rule": ["uniform", 2.0]}]
    folder, tensors, pixels = write(f"vlm_{kind}_k", m, config, case, inputs)
    with tempfile.TemporaryDirectory() as out:
        out = pathlib.Path(out)
        weights.main(folder, out / "folder")
        gguf_pair.main(out / "folder", out / "gguf", "k")
        pair = gguf_pair.Pair(out / "folder", "k")
        pair.stored = {t.name: (t.tensor_type, np.array(t.data)) for f in ("text", "mmproj")
                       for t in gguf.GGUFReader(out / "gguf" / f"{f}.gguf").tensors}
        used = {gguf.GGMLQuantizationType(t).name for t, _ in pair.stored.values()}
        assert {"Q4_K", "Q5_K", "Q6_K"} <= used, used
        model.load_state_dict({n: torch.from_numpy(np.ascontiguousarray(read_back(pair, n, tuple(t.shape)))) for n, t in tensors.items()})
    given = {"pixel_values": pixels}
    if not side:
        given["image_grid_thw"] = torch.tensor([[1, 6, 8]])
    types = lambda x: {} if side else {"mm_token_type_ids": torch.tensor([[1 if i == SEEN else 0 for i in x]])}
    vectors = model.model.get_image_features(**given)
    vectors = vectors.pooler_output if hasattr(vectors, "pooler_output") else vectors
    vectors = vectors.reshape(-1, vectors.shape[-1]) if torch.is_tensor(vectors) else torch.cat(list(vectors))
    expect(folder, lambda x: model(input_ids=torch.tensor([x]), **given, **types(x)).logits[0], ids,
           {"image_features": vectors.contiguous()})


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.no_grad():
        nanochat()
        ghostvis()
        for kind in QWENS:
            watch(kind)
        for kind in K_QUANTS:
            quantised(kind)
