"""Writes tensors as torch does, in its three forms of files: zip, stream and tar. Standard library only: the pickles are
made with Python's own pickler and stand-ins for the few names of torch that occur in them.

Element i of every tensor is (i * 5 % 9 - 4) / 8, of integer types without the division, of unsigned ones plus 4."""
import io
import os
import pickle
import struct
import sys
import tarfile
import types
import zipfile
from collections import OrderedDict

HERE = os.path.dirname(os.path.abspath(__file__))

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
