#!/usr/bin/env python3
"""Writes the small weight files beside this script, and the seeds of the fuzz targets. Standard library only: torch's
pickles are made with Python's own pickler and stand-ins for the few names of torch that occur in them.

Element i of every tensor is (i * 5 % 9 - 4) / 8, of integer types without the division, of unsigned ones plus 4.
usage: python3 make.py"""
import io
import json
import os
import pickle
import shutil
import struct
import sys
import tarfile
import types
import zipfile
from collections import OrderedDict

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "..", "..", "fuzz", "corpus")

# ---- stand-ins for torch's names, so that the pickler writes the same globals ----


def fake_module(name, **members):
    module = types.ModuleType(name)
    for key, value in members.items():
        value.__module__ = name
        value.__qualname__ = value.__name__ = key
        setattr(module, key, value)
    sys.modules[name] = module
    return module


def function():
    def f(*args):
        raise RuntimeError("never called")
    return f


STORAGES = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage", "F64": "DoubleStorage",
            "I64": "LongStorage", "I32": "IntStorage", "I16": "ShortStorage", "I8": "CharStorage", "U8": "ByteStorage",
            "BOOL": "BoolStorage", "F8_E4M3": "UntypedStorage", "F8_E5M2": "UntypedStorage"}
torch = fake_module("torch", Size=function(), FloatTensor=type("FloatTensor", (), {}), float8_e4m3fn=function(),
                    float8_e5m2=function(), **{n: type(n, (), {}) for n in set(STORAGES.values())})
utils = fake_module("torch._utils", _rebuild_tensor_v2=function(), _rebuild_tensor=function(),
                    _rebuild_tensor_v3=function(), _rebuild_parameter=function())
net = fake_module("my_network", Net=type("Net", (), {}), Config=type("Config", (), {}))
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
         "F8_E4M3": 1, "F8_E5M2": 1}


def encode(dtype, values):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    if dtype in ("F8_E4M3", "F8_E5M2"):
        out = b""
        for v in values:  # through f16, whose exponent has the width of e5m2's
            h, = struct.unpack("<H", struct.pack("<e", v))
            if dtype == "F8_E5M2":
                out += bytes([h >> 8])
            else:
                exponent = (h >> 10 & 31) - 15 + 7 if h & 0x7fff else 0
                out += bytes([h >> 8 & 0x80 | exponent << 3 | h >> 7 & 7])
        return out
    codes = {"F32": "f", "F16": "e", "F64": "d", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "?"}
    return struct.pack("<%d%s" % (len(values), codes[dtype]), *values)


def values(dtype, n):
    out = []
    for i in range(n):
        v = i * 5 % 9 - 4
        out.append(v / 8 if dtype[0] in "FB" and dtype != "BOOL" else v % 2 == 1 if dtype == "BOOL"
                   else v + 4 if dtype == "U8" else v)
    return out


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


class Storage:
    count = 0

    def __init__(self, dtype, data, key=None):
        self.dtype, self.data = dtype, data
        self.key = str(Storage.count) if key is None else key
        self.view = None
        Storage.count += 1

    def numel(self):
        return len(self.data) // (1 if STORAGES[self.dtype] == "UntypedStorage" else SIZES[self.dtype])


class Tensor:
    kind = "v2"

    def __init__(self, dtype, shape, storage=None, offset=0, stride=None, data=None):
        self.dtype, self.shape, self.offset = dtype, tuple(shape), offset
        self.storage = storage or Storage(dtype, encode(dtype, data or values(dtype, product(shape))))
        packed, step = [], 1
        for d in reversed(shape):
            packed.insert(0, step)
            step *= max(d, 1)
        self.stride = tuple(stride if stride is not None else packed)

    def __reduce_ex__(self, protocol):
        head = (self.storage, self.offset, self.shape, self.stride)
        if self.dtype.startswith("F8"):
            dtype = torch.float8_e4m3fn if self.dtype == "F8_E4M3" else torch.float8_e5m2
            return utils._rebuild_tensor_v3, head + (False, OrderedDict(), dtype)
        if self.kind == "v1":
            return utils._rebuild_tensor, head
        return utils._rebuild_tensor_v2, head + (False, OrderedDict())


class Parameter(Tensor):
    def __reduce_ex__(self, protocol):
        plain = Tensor(self.dtype, self.shape, self.storage, self.offset, self.stride)
        return utils._rebuild_parameter, (plain, False, OrderedDict())


class Global:
    """Pickles as a call of `module.name(*args)`, whatever that is."""

    def __init__(self, module, name, args):
        self.what = (module, name, args)

    def __reduce_ex__(self, protocol):
        module, name, args = self.what
        if module not in sys.modules:
            fake_module(module)
        if not hasattr(sys.modules[module], name):
            f = function()
            f.__module__, f.__qualname__, f.__name__ = module, name, name
            setattr(sys.modules[module], name, f)
        return getattr(sys.modules[module], name), args


class Pickler(pickle._Pickler):  # the one in Python: it asks persistent_id before anything else
    def __init__(self, file, protocol, stream=False):
        super().__init__(file, protocol)
        self.storages, self.stream = {}, stream

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        self.storages[obj.key] = obj
        pid = ("storage", getattr(torch, STORAGES[obj.dtype]), obj.key, "cpu", obj.numel())
        return pid + (obj.view,) if self.stream else pid


# ---- the three forms ----


def pickled(obj, protocol=2, stream=False):
    file = io.BytesIO()
    pickler = Pickler(file, protocol, stream)
    pickler.dump(obj)
    return file.getvalue(), pickler.storages


def write_zip(path, entries, method=zipfile.ZIP_STORED, seekable=True):
    class Pipe(io.RawIOBase):  # makes zipfile write data descriptors, as torch does
        def __init__(self):
            self.data = bytearray()

        def writable(self):
            return True

        def write(self, b):
            self.data += b
            return len(b)
    file = io.BytesIO() if seekable else Pipe()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    data = file.getvalue() if seekable else bytes(file.data)
    with open(os.path.join(HERE, path), "wb") as out:
        out.write(data)


def zip_entries(obj, protocol=2, root="archive"):
    data, storages = pickled(obj, protocol)
    entries = [(root + "/data.pkl", data), (root + "/byteorder", b"little")]
    entries += [("%s/data/%s" % (root, s.key), s.data) for s in storages.values()]
    return entries + [(root + "/version", b"3\n")]


def write_pth(path, obj, protocol=2, **options):
    write_zip(path, zip_entries(obj, protocol), **options)


def write_stream(path, obj):
    data, storages = pickled(obj, 2, True)
    keys = sorted(storages)
    out = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
    out += pickle.dumps({"protocol_version": 1001, "little_endian": True,
                         "type_sizes": {"short": 2, "int": 4, "long": 4}}, 2)
    out += data + pickle.dumps(keys, 2)
    for key in keys:
        out += struct.pack("<q", storages[key].numel()) + storages[key].data
    with open(os.path.join(HERE, path), "wb") as file:
        file.write(out)


class TarPickler(pickle._Pickler):
    def __init__(self, file):
        super().__init__(file, 2)
        self.tensors, self.numbers = {}, {}

    def persistent_id(self, obj):
        if isinstance(obj, Tensor):
            number = self.numbers.setdefault(id(obj), 94000000000000 + 64 * len(self.numbers))  # really addresses
            self.tensors[number] = obj
            return str(number)
        return None


def write_tar(path, obj, views=()):
    """views: (Storage seen, Storage it is a part of, first element)"""
    file = io.BytesIO()
    pickler = TarPickler(file)
    pickler.dump(obj)
    numbers, storages = {}, {}
    part_of = {id(v[0]): v for v in views}
    tensors = pickle.dumps(len(pickler.tensors), 2)
    for key, t in pickler.tensors.items():
        number = numbers.setdefault(id(t.storage), 1000 + len(numbers))
        root = part_of[id(t.storage)][1] if id(t.storage) in part_of else t.storage
        storages[id(root)] = root
        tensors += pickle.dumps((key, number, torch.FloatTensor), 2)
        tensors += struct.pack("<ii", len(t.shape), 0)
        tensors += struct.pack("<%dq" % (2 * len(t.shape)), *(t.shape + t.stride)) + struct.pack("<q", t.offset)
    body = pickle.dumps(len(storages), 2)
    for key, s in storages.items():
        number = numbers.setdefault(key, 1000 + len(numbers))
        body += pickle.dumps((number, "cpu", getattr(torch, STORAGES[s.dtype])), 2)
        body += struct.pack("<q", s.numel()) + s.data
    body += pickle.dumps([(numbers[id(v)], numbers[id(root)], first, v.numel()) for v, root, first in views], 2)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, bufsize=512) as archive:
        for name, data in (("storages", body), ("tensors", tensors), ("pickle", file.getvalue())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data = out.getvalue()
    end = 512
    while len(data) - end >= 512 and data[-end - 512:len(data) - end] == bytes(512):
        end += 512
    with open(os.path.join(HERE, path), "wb") as file:  # two empty blocks are enough of an end
        file.write(data[:len(data) - end + 1024] if end > 1024 else data)


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
    make_corpus()


main()
