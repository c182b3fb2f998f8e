"""The four networks of the CPU comparison in one small graph language, with random weights. write_onnx, write_ncnn and
write_davy write the same numbers in each runtime's file format, with its names."""
import json
import struct

import numpy as np


class Net:
    """Nodes (op, inputs, output, attributes) in execution order, shapes [C, H, W], FLOPs counted as 2 per multiply-add."""

    def __init__(self, shape, seed=0):
        self.nodes, self.flop, self.rng = [], 0, np.random.default_rng(seed)
        self.shape = {"in0": tuple(shape)}
        self.out = "in0"

    def add_node(self, op, inputs, shape, **attributes):
        self.out = f"b{len(self.nodes) + 1}"
        self.nodes.append((op, list(inputs), self.out, attributes))
        self.shape[self.out] = tuple(shape)
        return self.out

    def conv(self, x, c_out, k=3, bias=True, gain=1.0):
        c, h, w = self.shape[x]
        fan = c * k * k
        weight = (self.rng.standard_normal((c_out, c, k, k)) * gain / fan**0.5).astype("f")
        b = (self.rng.standard_normal(c_out) * 0.01).astype("f") if bias else None
        self.flop += 2 * c_out * fan * h * w
        return self.add_node("conv", [x], (c_out, h, w), W=weight, B=b, k=k)

    def act(self, op, x, **attributes):
        return self.add_node(op, [x], self.shape[x], **attributes)

    def prelu(self, x):
        return self.act("prelu", x, W=self.rng.uniform(0.1, 0.3, self.shape[x][0]).astype("f"))

    def add(self, a, b):
        return self.add_node("add", [a, b], self.shape[a])

    def scale(self, x, v):
        return self.act("scale", x, v=v)

    def up(self, x, k=2):
        c, h, w = self.shape[x]
        return self.add_node("up", [x], (c, h * k, w * k), k=k)

    def shuffle(self, x, k):
        c, h, w = self.shape[x]
        return self.add_node("ps", [x], (c // k // k, h * k, w * k), k=k)

    def cat(self, xs):
        _, h, w = self.shape[xs[0]]
        return self.add_node("cat", xs, (sum(self.shape[x][0] for x in xs), h, w))

    def norm(self, x):
        c = self.shape[x][0]
        return self.act("gn", x, W=self.rng.uniform(0.8, 1.2, c).astype("f"),
                        B=(self.rng.standard_normal(c) * 0.01).astype("f"))

    def attention(self, q, k, v):
        c, h, w = self.shape[q]
        self.flop += 4 * c * (h * w) ** 2
        return self.add_node("attn", [q, k, v], (c, h, w))


def compact(h, w, convs=32, features=64, scale=4):
    n = Net((3, h, w))
    x = n.prelu(n.conv("in0", features))
    for _ in range(convs):
        x = n.prelu(n.conv(x, features, gain=1.3))
    x = n.shuffle(n.conv(x, 3 * scale * scale), scale)
    n.add(x, n.up("in0", scale))
    return n


def taesd_decoder(h, w):
    n = Net((4, h // 8, w // 8))
    x = n.act("relu", n.conv(n.act("clamp3", "in0"), 64))

    def block(x):
        y = n.act("relu", n.conv(x, 64))
        y = n.act("relu", n.conv(y, 64))
        return n.act("relu", n.add(n.conv(y, 64), x))

    for _ in range(3):
        for _ in range(3):
            x = block(x)
        x = n.conv(n.up(x), 64, bias=False)
    n.conv(block(x), 3)
    return n


def kl_decoder(h, w):
    n = Net((4, h // 8, w // 8))
    x = n.conv(n.conv("in0", 4, 1), 512)

    def res(x, c):
        y = n.conv(n.act("silu", n.norm(x)), c)
        y = n.conv(n.act("silu", n.norm(y)), c)
        return n.add(y, x if n.shape[x][0] == c else n.conv(x, c, 1))

    x = res(x, 512)
    y = n.norm(x)
    x = n.add(x, n.conv(n.attention(n.conv(y, 512, 1), n.conv(y, 512, 1), n.conv(y, 512, 1)), 512, 1))
    x = res(x, 512)
    for level, c in enumerate((512, 512, 256, 128)):
        for _ in range(3):
            x = res(x, c)
        if level < 3:
            x = n.conv(n.up(x), c)
    n.conv(n.act("silu", n.norm(x)), 3)
    return n


def rrdb(h, w, blocks=23, features=64, growth=32):
    n = Net((3, h, w))
    first = x = n.conv("in0", features)
    for _ in range(blocks):
        y = x
        for _ in range(3):
            xs = [y]
            for _ in range(4):
                xs.append(n.act("lrelu", n.conv(xs[0] if len(xs) == 1 else n.cat(xs), growth)))
            y = n.add(n.scale(n.conv(n.cat(xs), features), 0.2), y)
        x = n.add(n.scale(y, 0.2), x)
    x = n.add(n.conv(x, features), first)
    for _ in range(2):
        x = n.act("lrelu", n.conv(n.up(x), features))
    n.conv(n.act("lrelu", n.conv(x, features)), 3)
    return n


CASES = {
    "compact_x4_640x360": (lambda: compact(360, 640), "upscale"),
    "taesd_decode_512": (lambda: taesd_decoder(512, 512), "decode"),
    "sdxl_decode_256": (lambda: kl_decoder(256, 256), "decode"),
    "rrdb_x4_128": (lambda: rrdb(128, 128), "upscale"),
}


# ---- davy: the key names of released checkpoints, convolutions and norms in execution order ----

def compact_keys(n):
    return [f"body.{i}" for i in range(sum(op in ("conv", "prelu") for op, *_ in n.nodes))]


def taesd_keys(_):
    keys = ["decoder.1"]
    for first in (3, 8, 13):
        keys += [f"decoder.{first + b}.conv.{c}" for b in range(3) for c in (0, 2, 4)] + [f"decoder.{first + 4}"]
    return keys + [f"decoder.18.conv.{c}" for c in (0, 2, 4)] + ["decoder.19"]


def kl_keys(n):
    def res(p, shortcut):
        return [f"{p}.{k}" for k in ("norm1", "conv1", "norm2", "conv2")] + ([f"{p}.nin_shortcut"] if shortcut else [])

    attn = [f"decoder.mid.attn_1.{k}" for k in ("norm", "q", "k", "v", "proj_out")]
    keys = ["post_quant_conv", "decoder.conv_in"] + res("decoder.mid.block_1", False) + attn
    keys += res("decoder.mid.block_2", False)
    for level in (3, 2, 1, 0):
        for b in range(3):
            keys += res(f"decoder.up.{level}.block.{b}", b == 0 and level < 2)
        if level:
            keys.append(f"decoder.up.{level}.upsample.conv")
    return keys + ["decoder.norm_out", "decoder.conv_out"]


def rrdb_keys(n):
    blocks = (sum(op == "conv" for op, *_ in n.nodes) - 6) // 15
    dense = [f"body.{i}.rdb{r}.conv{c}" for i in range(blocks) for r in (1, 2, 3) for c in range(1, 6)]
    return ["conv_first"] + dense + ["conv_body", "conv_up1", "conv_up2", "conv_hr", "conv_last"]


KEYS = {"compact": compact_keys, "taesd": taesd_keys, "sdxl": kl_keys, "rrdb": rrdb_keys}


def write_davy(name, n, path):
    tensors = {}
    weighted = [(op, a) for op, _, _, a in n.nodes if op in ("conv", "prelu", "gn")]
    keys = KEYS[name.split("_")[0]](n)
    assert len(keys) == len(weighted), (name, len(keys), len(weighted))
    for key, (_, a) in zip(keys, weighted):
        tensors[key + ".weight"] = a["W"]
        if a.get("B") is not None:
            tensors[key + ".bias"] = a["B"]
    header, offset = {}, 0
    for key, t in tensors.items():
        header[key] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [offset, offset + t.nbytes]}
        offset += t.nbytes
    blob = json.dumps(header).encode()
    blob += b" " * (-len(blob) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(blob)) + blob)
        for t in tensors.values():
            f.write(np.ascontiguousarray(t).tobytes())


# ---- ONNX, for ONNX Runtime and OpenVINO ----

def write_onnx(n, path, group_norm_op):
    """group_norm_op: use the GroupNormalization op; else an instance norm between reshapes, as torch's exporter writes it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], []

    def const(values, name):
        constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(op, inputs, out, **attributes):
        nodes.append(helper.make_node(op, inputs, [out], **attributes))

    def group_norm(x, o, a):
        c, h, w = n.shape[o]
        if group_norm_op:
            node("GroupNormalization", [x, const(a["W"], o + "w"), const(a["B"], o + "b")], o, num_groups=32, epsilon=1e-6)
            return
        node("Reshape", [x, const(np.array([0, 32, -1], "int64"), o + "s")], o + "r")
        node("InstanceNormalization", [o + "r", const(np.ones(32, "f"), o + "_one"), const(np.zeros(32, "f"), o + "_zero")],
             o + "i", epsilon=1e-6)
        node("Reshape", [o + "i", const(np.array([1, c, h, w], "int64"), o + "t")], o + "q")
        node("Mul", [o + "q", const(a["W"].reshape(-1, 1, 1), o + "w")], o + "m")
        node("Add", [o + "m", const(a["B"].reshape(-1, 1, 1), o + "b")], o)

    def attention(inputs, o):
        c, h, w = n.shape[o]
        flat = const(np.array([1, c, h * w], "int64"), o + "s")
        for t, x in zip("qkv", inputs):
            node("Reshape", [x, flat], o + t)
        node("Transpose", [o + "q"], o + "qt", perm=[0, 2, 1])
        node("Transpose", [o + "v"], o + "vt", perm=[0, 2, 1])
        node("MatMul", [o + "qt", o + "k"], o + "d")
        node("Mul", [o + "d", const(np.float32(c**-0.5), o + "sc")], o + "e")
        node("Softmax", [o + "e"], o + "p", axis=-1)
        node("MatMul", [o + "p", o + "vt"], o + "y")
        node("Transpose", [o + "y"], o + "yt", perm=[0, 2, 1])
        node("Reshape", [o + "yt", const(np.array([1, c, h, w], "int64"), o + "u")], o)

    for op, i, o, a in n.nodes:
        if op == "conv":
            inputs = [i[0], const(a["W"], o + "w")] + ([const(a["B"], o + "b")] if a["B"] is not None else [])
            node("Conv", inputs, o, kernel_shape=[a["k"]] * 2, pads=[a["k"] // 2] * 4)
        elif op == "prelu":
            node("PRelu", [i[0], const(a["W"].reshape(-1, 1, 1), o + "w")], o)
        elif op == "relu":
            node("Relu", i, o)
        elif op == "lrelu":
            node("LeakyRelu", i, o, alpha=0.2)
        elif op == "silu":
            node("Sigmoid", i, o + "s")
            node("Mul", [i[0], o + "s"], o)
        elif op == "add":
            node("Add", i, o)
        elif op == "scale":
            node("Mul", [i[0], const(np.float32(a["v"]), o + "v")], o)
        elif op == "up":
            node("Resize", [i[0], "", const(np.array([1, 1, a["k"], a["k"]], "f"), o + "k")], o, mode="nearest",
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        elif op == "ps":
            node("DepthToSpace", i, o, blocksize=a["k"], mode="CRD")
        elif op == "cat":
            node("Concat", i, o, axis=1)
        elif op == "clamp3":
            node("Mul", [i[0], const(np.float32(1 / 3), o + "v")], o + "p")
            node("Tanh", [o + "p"], o + "t")
            node("Mul", [o + "t", const(np.float32(3), o + "w")], o)
        elif op == "gn":
            group_norm(i[0], o, a)
        elif op == "attn":
            attention(i, o)
    node("Identity", [n.out], "out0")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("in0", TensorProto.FLOAT, (1,) + n.shape["in0"])],
                              [value("out0", TensorProto.FLOAT, (1,) + n.shape[n.out])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


# ---- ncnn ----

def write_ncnn(n, base):
    lines, blobs, data = [], {"in0"}, bytearray()
    uses = {}
    for _, inputs, _, _ in n.nodes:
        for x in inputs:
            uses[x] = uses.get(x, 0) + 1
    copies = {}

    def layer(kind, name, inputs, outputs, params=""):
        lines.append(f"{kind:<16} {name:<16} {len(inputs)} {len(outputs)} {' '.join(inputs)} {' '.join(outputs)} {params}".rstrip())
        blobs.update(outputs)

    def finish(blob):  # ncnn needs an explicit copy for every further use
        if uses.get(blob, 0) > 1:
            copies[blob] = [f"{blob}_{j}" for j in range(uses[blob])]
            layer("Split", "sp_" + blob, [blob], list(copies[blob]))

    def take(blob):
        return copies[blob].pop(0) if blob in copies else blob

    def attention(i, o):
        c, h, w = n.shape[o]
        for t, x in zip("qkv", i):
            layer("Reshape", o + t, [x], [o + t], f"0={h * w} 1={c}")
        layer("Permute", o + "qt", [o + "q"], [o + "qt"], "0=1")
        layer("BinaryOp", o + "qs", [o + "qt"], [o + "qs"], f"0=2 1=1 2={c**-0.5:.8f}")
        layer("MatMul", o + "d", [o + "qs", o + "k"], [o + "d"])
        layer("Softmax", o + "sm", [o + "d"], [o + "sm"], "0=1 1=1")
        layer("MatMul", o + "y", [o + "v", o + "sm"], [o + "y"], "0=1")
        layer("Reshape", o, [o + "y"], [o], f"0={w} 1={h} 2={c}")

    layer("Input", "in0", [], ["in0"])
    finish("in0")
    for op, i, o, a in n.nodes:
        i = [take(x) for x in i]
        if op == "conv":
            has_bias = a["B"] is not None
            layer("Convolution", o, i, [o],
                  f"0={a['W'].shape[0]} 1={a['k']} 4={a['k'] // 2} 5={int(has_bias)} 6={a['W'].size}")
            data += struct.pack("<I", 0) + a["W"].tobytes() + (a["B"].tobytes() if has_bias else b"")
        elif op == "prelu":
            layer("PReLU", o, i, [o], f"0={a['W'].size}")
            data += a["W"].tobytes()
        elif op in ("relu", "lrelu"):
            layer("ReLU", o, i, [o], "0=0.2" if op == "lrelu" else "")
        elif op == "silu":
            layer("Swish", o, i, [o])
        elif op == "add":
            layer("BinaryOp", o, i, [o], "0=0")
        elif op == "scale":
            layer("BinaryOp", o, i, [o], f"0=2 1=1 2={a['v']}")
        elif op == "up":
            layer("Interp", o, i, [o], f"0=1 1={a['k']}.0 2={a['k']}.0")
        elif op == "ps":
            layer("PixelShuffle", o, i, [o], f"0={a['k']}")
        elif op == "cat":
            layer("Concat", o, i, [o], "0=0")
        elif op == "clamp3":
            layer("BinaryOp", o + "p", i, [o + "p"], f"0=2 1=1 2={1 / 3:.8f}")
            layer("TanH", o + "t", [o + "p"], [o + "t"])
            layer("BinaryOp", o, [o + "t"], [o], "0=2 1=1 2=3.0")
        elif op == "gn":
            layer("GroupNorm", o, i, [o], f"0=32 1={a['W'].size} 2=1e-6 3=1")
            data += a["W"].tobytes() + a["B"].tobytes()
        elif op == "attn":
            attention(i, o)
        finish(o)
    with open(base + ".param", "w") as f:
        f.write("7767517\n%d %d\n" % (len(lines), len(blobs)) + "\n".join(lines) + "\n")
    with open(base + ".bin", "wb") as f:
        f.write(data)
