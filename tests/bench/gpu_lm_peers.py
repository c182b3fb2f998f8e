#!/usr/bin/env python3
"""Compares davy with transformers on one NVIDIA GPU: time to a picture's first token, and tokens per second, in one process.

    python3 tests/bench/gpu_lm_peers.py [--library build/libdavy.so.1] [--case PART]... [--only dynamic,static,davy]
                                        [--tokens N] [--rounds N] [--models DIR] [--save F.jsonl]

Needs torch with CUDA and transformers. Each model has its published shape, random bf16 weights and a synthetic vocabulary, in a
folder that both read. Every contender gets a picture of the same size and about as many words, and answers greedily with
exactly N tokens. Contenders take turns; figures are medians. davy is timed through its ABI, from the picture in host memory to
the text, with preprocessing, tokenizer and streaming. transformers is timed from prepared tensors. Only davy runs int8 and int4:
it quantises the weights when it loads them."""
import argparse
import ctypes
import json
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "plugins" / "comfy"))
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import tiny_vlm  # noqa: E402
from davy import abi  # noqa: E402

ref = ctypes.byref
QUESTION = "What is in this picture? Say it in a few short words."


# ---- models ----


def vocabulary(size, special):
    """A byte-level tokenizer.json: the tokens of all bytes come first, `special` keeps its ids, and the rest are fillers."""
    words = {}
    for i, letter in enumerate(tiny_vlm.byte_letters().values()):
        words[letter] = i
    taken = set(special.values())
    for i in range(256, size):
        if i not in taken:
            words[f"<w{i}>"] = i
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": level,
        "added_tokens": [{"id": i, "content": token, **flags} for token, i in sorted(special.items(), key=lambda s: s[1])],
        "post_processor": None, "decoder": {**level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": words, "merges": []},
    }


def smolvlm():
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    text = dict(model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
                num_key_value_heads=3, head_dim=64, vocab_size=49280, rope_theta=100000.0, max_position_embeddings=8192,
                tie_word_embeddings=False, rms_norm_eps=1e-5)
    vision = dict(model_type="smolvlm_vision", hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
                  num_attention_heads=12, image_size=512, patch_size=16)
    config = SmolVLMConfig(vision_config=vision, text_config=text, image_token_id=49190, scale_factor=4, vocab_size=49280,
                           pad_token_id=0, eos_token_id=49279, bos_token_id=1)
    special = {"<|im_start|>": 49152, "<|im_end|>": 49154, "<fake_token_around_image>": 49189, "<image>": 49190,
               "<global-img>": 49152 - 1, "<end_of_utterance>": 49279}
    for row in range(1, 5):
        for column in range(1, 5):
            special[f"<row_{row}_col_{column}>"] = 49191 + (row - 1) * 4 + column
    files = {"preprocessor_config.json": {
        "image_processor_type": "SmolVLMImageProcessor", "do_convert_rgb": True, "do_resize": True,
        "size": {"longest_edge": 512}, "max_image_size": {"longest_edge": 512}, "resample": 1, "do_image_splitting": False,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        "do_pad": True}, "processor_config.json": {"processor_class": "SmolVLMProcessor", "image_seq_len": 64}}
    return SmolVLMForConditionalGeneration, config, special, files, (512, 512), 49280


def qwen25():
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    text = dict(hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16,
                num_key_value_heads=2, vocab_size=151936, max_position_embeddings=32768, rope_theta=1e6,
                tie_word_embeddings=True, rms_norm_eps=1e-6, eos_token_id=151645,
                rope_scaling={"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24]})
    vision = dict(depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16, out_hidden_size=2048, patch_size=14,
                  spatial_merge_size=2, temporal_patch_size=2, window_size=112, fullatt_block_indexes=[7, 15, 23, 31])
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, image_token_id=151655, video_token_id=151656,
                              vision_start_token_id=151652, vision_end_token_id=151653, tie_word_embeddings=True)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
             "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
             "<|image_pad|>", "<|video_pad|>"]
    special = {name: 151643 + i for i, name in enumerate(names)}
    files = {"preprocessor_config.json": {
        "image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14,
        "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711]}}
    return Qwen2_5_VLForConditionalGeneration, config, special, files, (728, 1288), 151936


CASES = {"smolvlm_256m": smolvlm, "qwen25_vl_3b": qwen25}


def make(name, folder):
    """Writes the folder once, and returns it with the model on the GPU."""
    import torch

    cls, config, special, files, size, vocab = CASES[name]()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = cls(config).eval()
    torch.set_default_dtype(torch.float32)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    if not (folder / "tokenizer.json").exists():
        model.save_pretrained(folder)
        (folder / "tokenizer.json").write_text(json.dumps(vocabulary(vocab, special)))
        (folder / "tokenizer_config.json").write_text("{}")
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content))
        (folder / "generation_config.json").unlink(missing_ok=True)
    return model, size


def tensors(name, size):
    """The tensors of a processor for a picture of this size, with about as many words as davy's prompt."""
    import torch

    if name == "smolvlm_256m":
        ids = [[*range(10, 30), *[49190] * 64, *range(10, 80)]]
        return dict(input_ids=ids, pixel_values=torch.randn(1, 1, 3, 512, 512, device="cuda", dtype=torch.bfloat16))
    rows, columns = size[0] // 14, size[1] // 14
    ids = [[*range(10, 60), 151652, *[151655] * (rows * columns // 4), 151653, *range(10, 80)]]
    return dict(input_ids=ids, pixel_values=torch.randn(rows * columns, 3 * 2 * 14 * 14, device="cuda", dtype=torch.bfloat16),
                image_grid_thw=torch.tensor([[1, rows, columns]], device="cuda"),
                mm_token_type_ids=(torch.tensor(ids, device="cuda") == 151655).int())


# ---- contenders ----


class Transformers:
    def __init__(self, model, inputs, cache):
        import torch

        ids = torch.tensor(inputs["input_ids"], device="cuda")
        self.model, self.cache = model, cache
        self.inputs = {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
        self.prompt = ids.shape[1]

    def answer(self, tokens):
        import torch

        more = {"cache_implementation": "static"} if self.cache == "static" else {}
        torch.cuda.synchronize()
        start = time.perf_counter()
        out = self.model.generate(**self.inputs, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, **more)
        torch.cuda.synchronize()
        assert out.shape[1] == self.prompt + tokens
        return time.perf_counter() - start


class Davy:
    def __init__(self, library, folder, size, compute, device):
        self.lib = abi.load(library)
        self.api = self.lib.api
        self.ctx, self.model = abi.Handle(), abi.Handle()
        self.lib.check(self.api.context_create(ref(abi.ContextDesc(device=device.encode())), ref(self.ctx)))
        source = abi.Source(path=abi.text(str(folder)))
        desc = abi.ModelDesc(sources=ctypes.pointer(source), n_sources=1, compute=compute)
        self.lib.check(self.api.model_open(self.ctx, ref(desc), ref(self.model)))
        height, width = size
        pixels = bytearray((x * 7 + y * 13 + c * 50) & 255 for y in range(height) for x in range(width) for c in range(3))
        self.image = abi.Tensor(memory=abi.Memory.HOST, dtype=abi.Dtype.U8, layout=abi.Layout.HWC, ndim=3)
        self.image.data = abi.buffer_address(pixels)
        self.image.shape[0], self.image.shape[1], self.image.shape[2] = height, width, 3
        self.keep = pixels

    def answer(self, tokens):
        d = abi.Handle()
        start = time.perf_counter()
        params = abi.CaptionParams(max_tokens=tokens, max_tiles=1, max_pixels=1 << 24)
        self.lib.check(self.api.dialogue_open(self.model, ref(params), ref(d)))
        self.lib.check(self.api.dialogue_add_image(d, ref(self.image)))
        self.lib.check(self.api.dialogue_add_text(d, abi.Role.USER, QUESTION.encode()))
        self.lib.check(self.api.dialogue_generate(d, None, None, None))
        took = time.perf_counter() - start
        info = abi.DialogueInfo()
        self.lib.check(self.api.dialogue_info(d, ref(info)))
        self.prompt = info.prompt_tokens
        assert info.generated_tokens == tokens, f"{info.generated_tokens} tokens, wanted {tokens}"
        self.api.dialogue_release(d)
        return took

    def close(self):
        self.api.model_release(self.model)
        self.api.context_release(self.ctx)


# ---- measuring ----


def measure(contenders, tokens, rounds):
    first, whole, begun = {}, {}, {}
    for name, c in contenders.items():
        start = time.perf_counter()
        c.answer(8)
        c.answer(tokens + 1)
        begun[name] = time.perf_counter() - start
        first[name], whole[name] = [], []
    for _ in range(rounds):
        for name, c in contenders.items():
            first[name].append(c.answer(1))
            whole[name].append(c.answer(tokens + 1))
    lines = {}
    for name, c in contenders.items():
        a, b = statistics.median(first[name]), statistics.median(whole[name])
        lines[name] = {"prompt": c.prompt, "first_token_ms": a * 1e3, "tokens_per_s": tokens / (b - a), "begun_s": begun[name]}
    return lines


def run(name, args):
    only = args.only.split(",") if args.only else ["dynamic", "static", "davy", "int8", "int4"]
    folder = pathlib.Path(args.models) / name
    folder.mkdir(parents=True, exist_ok=True)
    model, size = make(name, folder)
    inputs = tensors(name, size)
    contenders = {cache: Transformers(model, inputs, cache) for cache in ("dynamic", "static") if cache in only}
    computes = {"davy": abi.Dtype.BF16, "int8": abi.Dtype.INT8, "int4": abi.Dtype.INT4}
    for kind, compute in computes.items():
        if kind in only:
            try:
                contenders[kind] = Davy(args.library, folder, size, compute, args.device)
                contenders[kind].answer(2)
            except Exception as e:  # noqa: BLE001
                print(f"{name} {kind}: {e}", file=sys.stderr)
                contenders.pop(kind, None)
    lines = measure(contenders, args.tokens, args.rounds)
    for kind, line in lines.items():
        print(f"| {name} | {kind} | {line['prompt']} | {line['first_token_ms']:.1f} | {line['tokens_per_s']:.0f} | {line['begun_s']:.1f} |",
              flush=True)
        if args.save:
            with open(args.save, "a", encoding="utf-8") as f:
                f.write(json.dumps({"case": name, "by": kind, **line}) + "\n")
    for c in contenders.values():
        if isinstance(c, Davy):
            c.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", default=str(ROOT / "build" / "libdavy.so.1"))
    p.add_argument("--case", action="append", default=[])
    p.add_argument("--only", default="")
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--models", default=str(pathlib.Path(tempfile.gettempdir()) / "davy-lm-models"))
    p.add_argument("--device", default="cuda")
    p.add_argument("--save")
    args = p.parse_args()
    print("| model | by | prompt tokens | first token ms | tokens/s | until warm s |\n|---|---|---|---|---|---|")
    for name in CASES:
        if not args.case or any(part in name for part in args.case):
            run(name, args)


if __name__ == "__main__":
    main()
