#!/usr/bin/env python3
"""Writes a captioning model's folder (config.json, model.safetensors, perhaps tokenizer.json) as the pair of GGUF files that
converters make: with other names, llama's q and k rows in pairs, and Qwen's patches as one matrix for each frame.

    python3 tests/golden/gguf_pair.py FOLDER OUT_FOLDER [q8_0|k]

Matrices keep their type. q8_0: the language model's become Q8_0. k: in both files, matrices with long enough rows become Q4_K,
Q5_K and Q6_K, mixed as in published files (K_TYPES). Needs NumPy only."""
import json
import pathlib
import re
import struct
import sys

import numpy as np

TYPES = {"F32": 0, "F16": 1, "BF16": 30}
BLOCK = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
VISION = {"layer_norm1": "ln1", "layer_norm2": "ln2", "norm1": "ln1", "norm2": "ln2", "self_attn.q_proj": "attn_q",
          "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out",
          "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
          "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
          "mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down"}
JOINTS = {"merger.ln_q": "v.post_ln", "merger.norm": "v.post_ln", "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2",
          "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2", "linear_1": "mm.0", "linear_2": "mm.2",
          "post_layernorm": "v.post_ln", "modality_projection.proj": "mm.model.fc"}
SPLIT = ("qwen2_vl", "qwen2_5_vl")
Q4_K, Q5_K, Q6_K = 12, 13, 14
K_TYPES = {"attn_q": Q4_K, "attn_k": Q5_K, "attn_v": Q6_K, "attn_output": Q5_K, "attn_out": Q6_K, "ffn_gate": Q4_K,
           "ffn_up": Q4_K, "ffn_down": Q6_K, "token_embd": Q6_K, "output": Q5_K, "mm.0": Q4_K, "mm.2": Q5_K, "mm.model.fc": Q6_K}


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            kind = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[t["dtype"]]
            out[name] = (t["dtype"], np.frombuffer(data[8 + size + a:8 + size + b], kind).reshape(t["shape"]))
    return out


def widen(t):
    dtype, x = t
    return (x.astype("<u4") << 16).view("<f4") if dtype == "BF16" else x.astype("<f4")


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, v):
    if isinstance(v, str):
        return string(key) + struct.pack("<I", 8) + string(v)
    if isinstance(v, bool):
        return string(key) + struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return string(key) + struct.pack("<II", 4, v)
    if isinstance(v, float):
        return string(key) + struct.pack("<If", 6, v)
    if not v or isinstance(v[0], str):
        return string(key) + struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(string, v))
    if v and isinstance(v[0], bool):
        return string(key) + struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
    if v and isinstance(v[0], float):
        return string(key) + struct.pack("<IIQ", 9, 6, len(v)) + np.asarray(v, "<f4").tobytes()
    return string(key) + struct.pack("<IIQ", 9, 5, len(v)) + np.asarray(v, "<i4").tobytes()


def q8_0(x):
    x = x.reshape(-1, 32)
    d = np.abs(x).max(1, keepdims=True) / 127
    q = np.rint(x / np.where(d == 0, 1, d)).astype("i1")
    return np.concatenate([d.astype("<f2").view("u1"), q.view("u1")], 1).tobytes()


def halves(x):
    """f16 values as bytes, and as rounded numbers."""
    h = np.asarray(x, "<f4").astype("<f2")
    return h.view("u1").reshape(len(h), -1), h.astype("<f4").reshape(len(h), -1)


def whole(x, by, low, high):
    return np.clip(np.rint(x / np.where(by == 0, 1, by)), low, high).astype("i4")


def q4_or_5_k(x, bits):
    x = np.asarray(x, "<f4").reshape(-1, 8, 32)
    least = np.minimum(x.min(2), 0)
    scale = (x.max(2) - least) / (2**bits - 1)
    d, d_means = halves(scale.max(1) / 63)
    dmin, dmin_means = halves(-least.min(1) / 63)
    s, m = whole(scale, d_means, 0, 63), whole(-least, dmin_means, 0, 63)
    q = whole(x + (dmin_means * m)[:, :, None], (d_means * s)[:, :, None], 0, 2**bits - 1)
    heads = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], 1)
    low = (q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4).reshape(len(x), 128)
    fifth = [(q >> 4 << np.arange(8)[None, :, None]).sum(1)] if bits == 5 else []
    return np.concatenate([d, dmin, *(p.astype("u1") for p in [heads, *fifth, low])], 1).tobytes()


def q6_k(x):
    x = np.asarray(x, "<f4").reshape(-1, 16, 16)
    top = np.take_along_axis(x, np.abs(x).argmax(2)[:, :, None], 2)[:, :, 0]  # the scale has the opposite sign
    d, d_means = halves(np.abs(top).max(1) / 32 / 127)
    s = whole(top / -32, d_means, -128, 127)
    q = whole(x, (d_means * s)[:, :, None], -32, 31).reshape(-1, 2, 4, 32) + 32
    low = (q[:, :, :2] & 15 | (q[:, :, 2:] & 15) << 4).reshape(len(x), 128)
    high = (q >> 4 << 2 * np.arange(4)[None, None, :, None]).sum(2).reshape(len(x), 64)
    return np.concatenate([low.astype("u1"), high.astype("u1"), s.astype("i1").view("u1"), d], 1).tobytes()


BLOCKS = {8: q8_0, Q4_K: lambda x: q4_or_5_k(x, 4), Q5_K: lambda x: q4_or_5_k(x, 5), Q6_K: q6_k}


def write(path, meta, tensors):
    """tensors: (name, type, array)"""
    info, blobs, offset = b"", [], 0
    for name, kind, x in tensors:
        blob = BLOCKS[kind](x) if kind in BLOCKS else np.ascontiguousarray(x).tobytes()
        dims = x.shape[::-1]
        info += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        info += struct.pack("<IQ", kind, offset)
        blobs.append(blob + b"\0" * (-len(blob) % 32))
        offset += len(blobs[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    head += b"".join(entry(k, v) for k, v in meta.items()) + info
    path.write_bytes(head + b"\0" * (-len(head) % 32) + b"".join(blobs))


def paired(x, heads):
    """Rows j and j + half of each head become neighbours."""
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


class Pair:
    def __init__(self, folder, quantised):
        self.config = json.loads((folder / "config.json").read_text())
        self.kind = self.config["model_type"]
        picture = folder / "preprocessor_config.json"
        self.picture = json.loads(picture.read_text()) if picture.exists() else {}
        self.text = self.config.get("text_config", self.config)
        self.vision = self.config["vision_config"]
        self.quantised = quantised
        self.texts, self.visions = [], []
        self.arch = {"qwen2_vl": "qwen2vl", "qwen2_5_vl": "qwen2vl", "qwen3_vl": "qwen3vl"}.get(self.kind, "llama")
        for name, t in read(folder / "model.safetensors").items():
            self.place(name, t)

    def add(self, to, name, t):
        k_type = K_TYPES.get(re.sub(r"^(v\.)?blk\.\d+\.|\.weight$", "", name))
        if t[1].ndim == 1:
            to.append((name, 0, widen(t)))
        elif self.quantised == "k" and k_type and t[1].shape[-1] % 256 == 0:
            to.append((name, k_type, widen(t)))
        elif to is self.texts and self.quantised == "q8_0" and t[1].shape[-1] % 32 == 0:
            to.append((name, 8, widen(t)))
        else:
            to.append((name, TYPES[t[0]], t[1]))

    def place(self, full, t):
        name, end = full.rsplit(".", 1)
        name = re.sub(r"^(model\.)?(text_model\.|language_model\.)?(model\.)?", "", name)
        visual = re.match(r"(visual|vision_tower\.vision_model|vision_model|vision_tower|connector|multi_modal_projector)\.(.*)", name)
        if visual:
            return self.place_vision(visual[2], end, t)
        block = re.match(r"layers\.(\d+)\.(.*)", name)
        if block:
            part = BLOCK[block[2]]
            if self.arch == "llama" and part in ("attn_q", "attn_k"):
                heads = self.text["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
                t = (t[0], paired(t[1], heads))
            return self.add(self.texts, f"blk.{block[1]}.{part}.{end}", t)
        known = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
        return self.add(self.texts, f"{known[name]}.{end}", t)

    def place_vision(self, name, end, t):
        block = re.match(r"(?:encoder\.layers|blocks)\.(\d+)\.(.*)", name)
        deep = re.match(r"deepstack_merger_list\.(\d+)\.(.*)", name)
        if block and VISION[block[2]] == "attn_qkv" and self.kind in SPLIT:
            for part, x in zip("qkv", np.split(t[1], 3)):
                self.add(self.visions, f"v.blk.{block[1]}.attn_{part}.{end}", (t[0], x))
        elif block:
            self.add(self.visions, f"v.blk.{block[1]}.{VISION[block[2]]}.{end}", t)
        elif deep:
            at = self.vision["deepstack_visual_indexes"][int(deep[1])]
            self.add(self.visions, f"v.deepstack.{at}.{deep[2].replace('linear_', '')}.{end}", t)
        elif name in ("embeddings.patch_embedding", "patch_embed.proj"):
            if t[1].ndim == 5:
                for frame, more in ((0, ""), (1, ".1")):
                    self.add(self.visions, f"v.patch_embd.weight{more}", (t[0], t[1][:, :, frame]))
            else:
                self.add(self.visions, f"v.patch_embd.{end}", t)
        elif name in ("embeddings.position_embedding", "pos_embed"):
            self.add(self.visions, f"v.position_embd.{end}", t)
        else:
            self.add(self.visions, f"{JOINTS[name]}.{end}", t)

    def text_meta(self):
        t, a = self.text, self.arch
        scaling = t.get("rope_scaling") or t.get("rope_parameters") or {}
        heads = t["num_attention_heads"]
        head_dim = t.get("head_dim", t["hidden_size"] // heads)
        meta = {"general.architecture": a, f"{a}.context_length": t["max_position_embeddings"],
                f"{a}.embedding_length": t["hidden_size"], f"{a}.block_count": t["num_hidden_layers"],
                f"{a}.feed_forward_length": t["intermediate_size"], f"{a}.attention.head_count": heads,
                f"{a}.attention.head_count_kv": t["num_key_value_heads"], f"{a}.attention.key_length": head_dim,
                f"{a}.attention.layer_norm_rms_epsilon": float(t["rms_norm_eps"]),
                f"{a}.rope.freq_base": float(t.get("rope_theta", scaling.get("rope_theta", 10000))),
                f"{a}.rope.dimension_count": head_dim, f"{a}.vocab_size": t["vocab_size"]}
        if "mrope_section" in scaling:
            meta[f"{a}.rope.dimension_sections"] = [*scaling["mrope_section"], 0]
        if scaling.get("rope_type") == "llama3":
            j = np.arange(head_dim // 2)
            f = float(t["rope_theta"]) ** (-2.0 * j / head_dim)
            wave, whole = 2 * np.pi / f, scaling["original_max_position_embeddings"]
            low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
            s = (whole / wave - low) / (high - low)
            g = np.where(wave > whole / low, f / factor, np.where(wave < whole / high, f, (1 - s) * f / factor + s * f))
            self.texts.append(("rope_freqs.weight", 0, (f / g).astype("<f4")))
        return meta

    def vision_meta(self):
        v = self.vision
        kind = {"idefics3": "idefics3", "smolvlm": "idefics3", "llava": "mlp", "qwen2_vl": "qwen2vl_merger",
                "qwen2_5_vl": "qwen2.5vl_merger", "qwen3_vl": "qwen3vl_merger"}[self.kind]
        act = v.get("hidden_act", "gelu_pytorch_tanh")
        width = v.get("embed_dim", v["hidden_size"])
        meta = {"general.architecture": "clip", "clip.has_vision_encoder": True, "clip.projector_type": kind,
                "clip.use_gelu": act.startswith("gelu"), "clip.use_silu": act == "silu",
                "clip.vision.embedding_length": width,
                "clip.vision.feed_forward_length": v.get("intermediate_size", width * v.get("mlp_ratio", 4)),
                "clip.vision.block_count": v.get("depth", v.get("num_hidden_layers")),
                "clip.vision.attention.head_count": v.get("num_heads", v.get("num_attention_heads")),
                "clip.vision.attention.layer_norm_epsilon": 1e-6, "clip.vision.patch_size": v["patch_size"],
                "clip.vision.projection_dim": self.text["hidden_size"],
                "clip.vision.image_size": v.get("image_size", 560)}
        if kind == "idefics3":
            meta["clip.vision.projector.scale_factor"] = self.config["scale_factor"]
            longest = self.picture.get("size", {}).get("longest_edge")
            if longest:
                meta["clip.vision.preproc_image_size"] = longest
        for key in ("min_pixels", "max_pixels"):
            if key in self.picture:
                meta["clip.vision.image_" + key] = self.picture[key]
        if "fullatt_block_indexes" in v:
            meta["clip.vision.wa_layer_indexes"] = v["fullatt_block_indexes"]
            meta["clip.vision.window_size"] = v.get("window_size", 112)
        if "deepstack_visual_indexes" in v:
            deep = v["deepstack_visual_indexes"]
            meta["clip.vision.is_deepstack_layers"] = [i in deep for i in range(v["depth"])]
        return meta


def tokenizer_meta(path, qwen):
    file = json.loads(path.read_text())
    names = {i: (text, 1) for text, i in file["model"]["vocab"].items()}
    names.update({t["id"]: (t["content"], 3 if t["special"] else 4) for t in file["added_tokens"]})
    merges = [m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]]
    ids = {text: i for i, (text, _) in names.items()}
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2" if qwen else "smollm", "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.tokens": [names[i][0] for i in range(len(names))],
            "tokenizer.ggml.token_type": [names[i][1] for i in range(len(names))],
            "tokenizer.ggml.bos_token_id": ids["<|im_start|>"],
            "tokenizer.ggml.eos_token_id": ids["<|im_end|>" if qwen else "<end_of_utterance>"]}


def main(folder, out, kind=None):
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    pair = Pair(folder, kind)
    meta = pair.text_meta()
    if (folder / "tokenizer.json").exists():
        meta.update(tokenizer_meta(folder / "tokenizer.json", pair.kind.startswith("qwen")))
    write(out / "text.gguf", meta, pair.texts)
    write(out / "mmproj.gguf", pair.vision_meta(), pair.visions)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
