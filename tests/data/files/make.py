#!/usr/bin/env python3
"""Writes the small weight files beside this script, and the seeds of the fuzz targets. Standard library only.
usage: python3 make.py"""
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections import OrderedDict

from torch_files import (HERE, Global, Parameter, Storage, Tensor, encode, net, product, values, write_pth, write_stream,
                         write_tar, write_zip, zip_entries)

CORPUS = os.path.join(HERE, "..", "..", "fuzz", "corpus")

# ---- safetensors and GGUF ----


def write_safetensors(path, tensors, metadata=None):
    header, data = OrderedDict(), b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape) in tensors.items():
        body = encode(dtype, values(dtype, product(shape)))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(os.path.join(HERE, path)), exist_ok=True)
    with open(os.path.join(HERE, path), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def write_gguf(path):
    pairs = [("general.architecture", 8, gguf_string("test")), ("general.alignment", 4, struct.pack("<I", 64)),
             ("a.u8", 0, b"\xc8"), ("a.i8", 1, struct.pack("<b", -5)), ("a.u16", 2, struct.pack("<H", 65535)),
             ("a.i16", 3, struct.pack("<h", -2)), ("a.i32", 5, struct.pack("<i", -70000)),
             ("a.f32", 6, struct.pack("<f", 0.5)), ("a.bool", 7, b"\x01"),
             ("a.u64", 10, struct.pack("<Q", 2 ** 64 - 1)),
             ("a.i64", 11, struct.pack("<q", -2 ** 63)), ("a.f64", 12, struct.pack("<d", -0.25)),
             ("a.list", 9, struct.pack("<IQ", 4, 3) + struct.pack("<3I", 1, 2, 3)),
             ("a.words", 9, struct.pack("<IQ", 8, 2) + gguf_string("one") + gguf_string("two")),
             ("a.nested", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 0, 2) + b"ab")]
    plain = [("conv.weight", 0, "F32", (4, 3, 3, 3)), ("half", 1, "F16", (2, 3)), ("brain", 30, "BF16", (5,)),
             ("double", 28, "F64", (3,)), ("long", 27, "I64", (4,)), ("int", 26, "I32", (4,)),
             ("short", 25, "I16", (4,)), ("char", 24, "I8", (4,))]
    tensors = [(n, t, s, encode(d, values(d, product(s)))) for n, t, d, s in plain]
    tensors += [("blocks4", 2, (2, 32), bytes(36)), ("blocks8", 8, (1, 64), bytes(68))]
    tensors += [("blocksk", 14, (256,), bytes(210))]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for key, kind, data in pairs:
        head += gguf_string(key) + struct.pack("<I", kind) + data
    body = b""
    for name, kind, shape, data in tensors:
        head += gguf_string(name) + struct.pack("<I", len(shape))
        head += struct.pack("<%dQ" % len(shape), *reversed(shape)) + struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % 64)
    with open(os.path.join(HERE, path), "wb") as file:
        file.write(head + bytes(-len(head) % 64) + body)


# ---- what is in them ----


PLAIN = OrderedDict([("conv.weight", ("F32", (4, 3, 3, 3))), ("conv.bias", ("F32", (4,))), ("half", ("F16", (2, 3))),
                     ("brain", ("BF16", (5,))), ("double", ("F64", (3,))), ("long", ("I64", (4,))),
                     ("int", ("I32", (4,))), ("short", ("I16", (4,))), ("char", ("I8", (4,))), ("byte", ("U8", (4,))),
                     ("scalar", ("F32", ())),
                     ("empty", ("F32", (0, 3)))])


def plain(prefix=""):
    tensors = OrderedDict((prefix + name, Tensor(dtype, shape)) for name, (dtype, shape) in PLAIN.items())
    six = Storage("F32", encode("F32", values("F32", 6)))
    tensors[prefix + "transposed"] = Tensor("F32", (3, 2), six, 0, (1, 3))
    tensors[prefix + "slice"] = Tensor("F32", (2,), six, 3, (2,))
    tensors[prefix + "tied"] = Tensor("F32", (4, 3, 3, 3), tensors[prefix + "conv.weight"].storage)
    tensors[prefix + "spread"] = Tensor("F32", (2, 2), six, 1, (0, 1))  # an expanded view: a stride of 0
    return tensors


def small(n=1, first="body.0.weight"):
    return OrderedDict([(first, Tensor("F32", (n, 2)))])


def make_hostile():
    command = ("touch %s/EXECUTED" % "/tmp",)
    write_pth("bomb_only.pth", Global("posix", "system", command))
    write_pth("bomb_beside.pth", {"a.weight": Tensor("F32", (2, 2)), "b.weight": Global("posix", "system", command)})
    write_pth("bomb_in_tensor.pth", {"a.weight": Global("builtins", "eval", ("1+1",))})
    with open(os.path.join(HERE, "bomb.pkl"), "wb") as file:
        file.write(pickle.dumps(Global("posix", "system", command), 2))
    module = net.Net()
    module.__dict__["weight"] = Tensor("F32", (2,))
    write_pth("module.pth", module)
    laughs = {"x": Tensor("F32", (1,))}
    for _ in range(40):
        laughs = {"a": laughs, "b": laughs}
    write_pth("laughs.pth", laughs)
    own = {"x": Tensor("F32", (1,))}
    own["self"] = own
    own["other"] = own
    write_pth("self.pth", own)
    deep = {"x": Tensor("F32", (1,))}
    for _ in range(70):
        deep = {"d": deep, "y": 1}
    write_pth("deep.pth", deep)
    write_pth("deflated.pth", small(), method=zipfile.ZIP_DEFLATED)
    write_zip("torchscript.pt", zip_entries(small(), root="net") + [("net/constants.pkl", pickle.dumps((), 2)),
                                                                    ("net/code/__torch__.py", b"class Net: pass\n")])
    write_zip("arrays.npz", [("weight.npy", b"\x93NUMPY")])


def make_wrapped():
    config = net.Config()
    config.__dict__["lr"] = 1e-4
    write_pth("wrapped.pth", {"epoch": 3, "args": config, "params": small(5), "params_ema": small(2),
                              "optimizer": {"state": {0: {"exp_avg": Tensor("F32", (9,))}}, "lr": 0.5}})
    write_pth("lightning.pth", {"state_dict": OrderedDict([("module.a.weight", Tensor("F32", (2,))),
                                                           ("module.b.weight", Parameter("F16", (3,)))]),
                                "callbacks": Global("my_network", "Callback", ()), "hyper": b"\0\1", "big": 2 ** 100})
    write_pth("model.pth", {"model": OrderedDict([("model.0.weight", Tensor("F32", (2,)))]), "iter": 7}, protocol=4)
    write_pth("single.pth", {"anything": OrderedDict([("0.weight", Tensor("F32", (2,)))])}, protocol=3)
    write_pth("nested.pth", {"net_a": {"conv": {"weight": Tensor("F32", (2,))}, 7: Tensor("F32", (1,))},
                             "b": Tensor("F32", ())})
    Tensor.kind = "v1"
    root = Storage("F32", encode("F32", [9.0, 9.0] + values("F32", 4)), "root")
    root.view = ("seen", 2, 4)
    write_stream("view.stream.pth", OrderedDict([("seen", Tensor("F32", (2, 2), root))]))
    Tensor.kind = "v2"


def make_marked():
    write_pth("marked.pth", {"name": "a network", "state_dict": OrderedDict([("a.weight", Tensor("F32", (2,))), ("pro", 1),
                                                                             ("flag", False), ("none", None)])})


def make_folders():
    write_safetensors("shards/model-00001-of-00002.safetensors", {"a.weight": ("F32", (2, 2)), "a.bias": ("F16", (2,))})
    write_safetensors("shards/model-00002-of-00002.safetensors", {"b.weight": ("BF16", (3,))})
    with open(os.path.join(HERE, "shards/model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": 26}, "weight_map": {
            "a.weight": "model-00001-of-00002.safetensors", "a.bias": "model-00001-of-00002.safetensors",
            "b.weight": "model-00002-of-00002.safetensors"}}, file, indent=1)
    with open(os.path.join(HERE, "shards/config.json"), "w") as file:
        file.write('{"model_type": "test"}\n')
    write_safetensors("pair/tiny_encoder.safetensors", {"0.weight": ("F32", (2, 2))})
    write_safetensors("pair/tiny_decoder.safetensors", {"params.1.weight": ("F32", (3,))})
    write_safetensors("several/one.safetensors", {"a": ("F32", (1,))})
    write_safetensors("several/two.safetensors", {"a": ("F32", (1,))})
    write_safetensors("twins/net.safetensors", {"a": ("F32", (1,))})
    shutil.copy(os.path.join(HERE, "single.pth"), os.path.join(HERE, "twins/net.pth"))
    write_safetensors("checkpoint.safetensors", {
        "model.diffusion_model.label_emb.0.0.weight": ("F16", (1,)),
        "first_stage_model.decoder.conv_in.weight": ("F16", (2,)),
        "conditioner.embedders.1.model.ln_final.weight": ("F16", (1,)),
        "first_stage_model.encoder.conv_in.weight": ("F16", (3,))})


def make_corpus():
    def seed(target, name, data):
        os.makedirs(os.path.join(CORPUS, target), exist_ok=True)
        with open(os.path.join(CORPUS, target, name), "wb") as file:
            file.write(data)

    def read(name):
        with open(os.path.join(HERE, name), "rb") as file:
            return file.read()
    for name in ("plain.safetensors", "fp8.safetensors", "checkpoint.safetensors"):
        seed("safetensors", name, read(name))
        data = read(name)
        n, = struct.unpack("<Q", data[:8])
        seed("json", name + ".json", data[8:8 + n])
    seed("json", "index.json", read("shards/model.safetensors.index.json"))
    seed("gguf", "mini.gguf", read("mini.gguf"))
    for name in ("plain.pth", "wrapped.pth", "module.pth", "torchscript.pt", "deflated.pth", "fp8.pth", "piped.pth"):
        seed("zip", name, read(name))
    for name in ("plain.stream.pth", "view.stream.pth", "bomb.pkl"):
        seed("pth_stream", name, read(name))
    seed("tar", "plain.tar.pth", read("plain.tar.pth"))
    for name in ("plain.pth", "plain_p4.pth", "wrapped.pth", "lightning.pth", "laughs.pth", "self.pth", "bomb_only.pth",
                 "module.pth", "fp8.pth"):
        with zipfile.ZipFile(os.path.join(HERE, name)) as archive:
            seed("pickle", name + ".pkl", archive.read("archive/data.pkl"))


def main():
    write_safetensors("plain.safetensors", PLAIN, {"format": "pt", "title": "small \u00e4"})
    write_safetensors("fp8.safetensors", {"e4m3": ("F8_E4M3", (3, 3)),
                                          "e5m2": ("F8_E5M2", (9,)), "flag": ("BOOL", (4,))})
    write_pth("plain.pth", plain())
    write_pth("plain_p4.pth", plain(), protocol=4)
    write_pth("piped.pth", plain(), seekable=False)
    write_stream("plain.stream.pth", plain())
    tar = plain()
    root = Storage("F32", encode("F32", [7.0] + values("F32", 4)))
    part = Storage("F32", encode("F32", values("F32", 4)))
    tar["part"] = Tensor("F32", (4,), part)
    write_tar("plain.tar.pth", tar, [(part, root, 1)])
    write_pth("fp8.pth", {"e4m3": Tensor("F8_E4M3", (3, 3)),
                          "e5m2": Tensor("F8_E5M2", (9,)), "flag": Tensor("BOOL", (4,))})
    write_gguf("mini.gguf")
    make_wrapped()
    make_hostile()
    make_folders()
    make_marked()
    make_corpus()


main()
