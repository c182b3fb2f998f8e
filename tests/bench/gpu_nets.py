"""The networks of the GPU comparison in torch, with the tensor names of published files, so that torch and davy can use one
safetensors file. Weights are random, with magnitudes that fit 16 bits. This module reads and writes safetensors itself,
so that the machine needs no package but torch."""
import ctypes
import json
import math
import struct

import torch
import torch.nn.functional as F
from torch import nn


def conv(i, o, k=3, gain=1.0, **options):
    c = nn.Conv2d(i, o, k, padding=k // 2 if options.get("stride", 1) == 1 else 0, **options)
    c.gain = gain
    return c


# ---- SDXL's AutoencoderKL ----


class Res(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, i, eps=1e-6), conv(i, o)
        self.norm2, self.conv2 = nn.GroupNorm(32, o, eps=1e-6), conv(o, o)
        if i != o:
            self.nin_shortcut = conv(i, o, 1)

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.GroupNorm(32, c, eps=1e-6)
        self.q, self.k, self.v, self.proj_out = (conv(c, c, 1) for _ in range(4))

    def forward(self, x):
        n = self.norm(x)
        q, k, v = (f(n).flatten(2).transpose(1, 2)[:, None] for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)[:, 0]
        return x + self.proj_out(y.transpose(1, 2).reshape(x.shape))


class Level(nn.Module):
    """Resnets, then a change of size: "upsample", "downsample" or None."""

    def __init__(self, i, o, count, resize):
        super().__init__()
        self.block = nn.ModuleList(Res(i if b == 0 else o, o) for b in range(count))
        self.resize = resize
        if resize:
            inner = nn.Module()
            inner.conv = conv(o, o, 3, stride=2 if resize == "downsample" else 1)
            setattr(self, resize, inner)

    def forward(self, x):
        for b in self.block:
            x = b(x)
        if self.resize == "upsample":
            x = self.upsample.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        elif self.resize == "downsample":
            x = self.downsample.conv(F.pad(x, (0, 1, 0, 1)))
        return x


class Half(nn.Module):
    """Encoder or decoder; `levels` run in the order given."""

    def __init__(self, i, o, first, last, mid_first, name, levels):
        super().__init__()
        self.conv_in, self.norm_out = conv(i, first), nn.GroupNorm(32, last, eps=1e-6)
        self.conv_out = conv(last, o)
        c = first if mid_first else last
        self.mid = nn.ModuleDict({"block_1": Res(c, c), "attn_1": Attention(c), "block_2": Res(c, c)})
        self.mid_first, self.name = mid_first, name
        setattr(self, name, nn.ModuleList(levels))

    def forward(self, x):
        x = self.conv_in(x)
        mid = [self.mid["block_1"], self.mid["attn_1"], self.mid["block_2"]]
        levels = list(getattr(self, self.name))
        for step in mid + levels[::-1] if self.mid_first else levels + mid:
            x = step(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class KlDecoder(nn.Module):
    def __init__(self, z=4, widths=(128, 256, 512, 512)):
        super().__init__()
        top = len(widths) - 1
        levels = [Level(widths[min(i + 1, top)], widths[i], 3, "upsample" if i else None) for i in range(top + 1)]
        self.post_quant_conv = conv(z, z, 1)
        self.decoder = Half(z, 3, widths[-1], widths[0], True, "up", levels)

    def forward(self, x):
        return self.decoder(self.post_quant_conv(x))


class KlEncoder(nn.Module):
    """Returns the moments: mean and log-variance."""

    def __init__(self, z=4, widths=(128, 256, 512, 512)):
        super().__init__()
        top = len(widths) - 1
        levels = [Level(widths[max(i - 1, 0)], widths[i], 2, "downsample" if i < top else None) for i in range(top + 1)]
        self.quant_conv = conv(2 * z, 2 * z, 1)
        self.encoder = Half(3, 2 * z, widths[0], widths[-1], False, "down", levels)

    def forward(self, x):
        return self.quant_conv(self.encoder(x))


# ---- TAESD ----


class Clamp(nn.Module):
    def forward(self, x):
        return torch.tanh(x / 3) * 3


class TinyBlock(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        self.conv = nn.Sequential(conv(c, c), nn.ReLU(), conv(c, c), nn.ReLU(), conv(c, c))

    def forward(self, x):
        return F.relu(self.conv(x) + x)


def taesd_decoder(z=4):
    layers = [Clamp(), conv(z, 64), nn.ReLU()]
    for _ in range(3):
        layers += [TinyBlock(), TinyBlock(), TinyBlock(), nn.Upsample(scale_factor=2), conv(64, 64, bias=False)]
    return nn.Sequential(*layers, TinyBlock(), conv(64, 3))


# ---- upscalers ----


class Compact(nn.Module):
    def __init__(self, convs, features=64, scale=4):
        super().__init__()
        layers = [conv(3, features), nn.PReLU(features)]
        for _ in range(convs):
            layers += [conv(features, features, gain=1.4), nn.PReLU(features)]
        self.body = nn.Sequential(*layers, conv(features, 3 * scale * scale))
        self.scale = scale

    def forward(self, x):
        return F.pixel_shuffle(self.body(x), self.scale) + F.interpolate(x, scale_factor=self.scale, mode="nearest")


class Folded(nn.Module):
    """SPAN's Conv3XC as it runs: one 3x3 convolution."""

    def __init__(self, i, o, gain=1.0):
        super().__init__()
        self.eval_conv = conv(i, o, gain=gain)

    def forward(self, x):
        return self.eval_conv(x)


class SpanBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c1_r, self.c2_r, self.c3_r = Folded(c, c), Folded(c, c), Folded(c, c)

    def forward(self, x):
        first = F.silu(self.c1_r(x))
        a = self.c3_r(F.silu(self.c2_r(first)))
        return (a + x) * (torch.sigmoid(a) - 0.5), first


class Span(nn.Module):
    def __init__(self, c=48, scale=2):
        super().__init__()
        self.conv_1 = Folded(3, c, gain=0.02)  # its input spans +-140
        for i in range(1, 7):
            setattr(self, f"block_{i}", SpanBlock(c))
        self.conv_2, self.conv_cat = Folded(c, c), conv(4 * c, c, 1)
        self.upsampler = nn.Sequential(conv(c, 3 * scale * scale), nn.PixelShuffle(scale))
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1), persistent=False)

    def forward(self, x):
        f = h = self.conv_1((x - self.mean) * 255)
        for i in range(1, 7):
            h, first = getattr(self, f"block_{i}")(h)
            after_first = h if i == 1 else after_first
        return self.upsampler(self.conv_cat(torch.cat([f, self.conv_2(h), after_first, first], 1)))


class Dense(nn.Module):
    def __init__(self, c=64, growth=32):
        super().__init__()
        for i in range(5):
            setattr(self, f"conv{i + 1}", conv(c + i * growth, growth if i < 4 else c))

    def forward(self, x):
        xs = [x]
        for i in range(1, 5):
            xs.append(F.leaky_relu(getattr(self, f"conv{i}")(torch.cat(xs, 1)), 0.2))
        return self.conv5(torch.cat(xs, 1)) * 0.2 + x


class Rrdb(nn.Module):
    def __init__(self):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = Dense(), Dense(), Dense()

    def forward(self, x):
        return self.rdb3(self.rdb2(self.rdb1(x))) * 0.2 + x


class RrdbNet(nn.Module):
    def __init__(self, blocks=23):
        super().__init__()
        self.conv_first, self.body = conv(3, 64), nn.Sequential(*(Rrdb() for _ in range(blocks)))
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (conv(64, 64) for _ in range(4))
        self.conv_last = conv(64, 3)

    def forward(self, x):
        x = self.conv_first(x)
        x = x + self.conv_body(self.body(x))
        for up in (self.conv_up1, self.conv_up2):
            x = F.leaky_relu(up(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.conv_last(F.leaky_relu(self.conv_hr(x), 0.2))


class SpanF3Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c1_r, self.c2_r, self.c3_r = Folded(c, c, 1.4), Folded(c, c, 1.4), Folded(c, c)
        self.att_conv = conv(c, c, 1)

    def forward(self, x):
        first = F.relu(self.c1_r(x))
        a = self.c3_r(F.relu(self.c2_r(first)))
        return (x + a) * torch.tanh(self.att_conv(a)), first


class SpanF3(nn.Module):
    """Works at half the size of the picture, whose sides must be even."""

    def __init__(self, c=64, blocks=8, scale=2):
        super().__init__()
        self.conv_1 = nn.ModuleDict({"1": Folded(12, c)})
        for i in range(1, blocks + 1):
            setattr(self, f"block_{i}", SpanF3Block(c))
        self.conv_cat, self.to_pixel = conv(4 * c, c, 1), Folded(c, 3 * (2 * scale) ** 2)
        self.blocks, self.shuffle = blocks, 2 * scale

    def forward(self, x):
        f = h = self.conv_1["1"](F.pixel_unshuffle(x, 2))
        for i in range(1, self.blocks + 1):
            h, first = getattr(self, f"block_{i}")(h)
            after_first = h if i == 1 else after_first
        return F.pixel_shuffle(self.to_pixel(self.conv_cat(torch.cat([f, h, after_first, first], 1))), self.shuffle)


def leaky(x):
    return F.leaky_relu(x, 0.1)


def cut(x, n):
    return x[:, :, n:-n, n:-n]


def valid(i, o, k=3, stride=1):
    c = nn.Conv2d(i, o, k, stride)
    c.gain = 1.2
    return c


def transposed(i, o, k, stride, padding=0):
    c = nn.ConvTranspose2d(i, o, k, stride, padding)
    c.gain = 1.2
    return c


def mean_of(x):
    """For export the mean is taken row by row: ONNX Runtime sums in 16 bits, where a whole picture's sum is infinite."""
    return x.mean(3, keepdim=True).mean(2, keepdim=True) if torch.onnx.is_in_onnx_export() else x.mean((2, 3), keepdim=True)


class Pair(nn.Module):
    """Two convolutions, optionally with channel weights that are computed from the channels' means."""

    def __init__(self, i, middle, o, weighed):
        super().__init__()
        self.conv = nn.Sequential(valid(i, middle), nn.LeakyReLU(0.1), valid(middle, o), nn.LeakyReLU(0.1))
        if weighed:
            self.seblock = nn.ModuleDict({"conv1": conv(o, o // 8, 1), "conv2": conv(o // 8, o, 1)})

    def forward(self, x):
        x = self.conv(x)
        if not hasattr(self, "seblock"):
            return x
        mean = mean_of(x)
        return x * torch.sigmoid(self.seblock["conv2"](F.relu(self.seblock["conv1"](mean))))


class CuganFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv1_down, self.conv2 = Pair(3, 32, 64, False), valid(64, 64, 2, 2), Pair(64, 128, 64, True)
        self.conv2_up, self.conv3, self.conv_bottom = transposed(64, 64, 2, 2), valid(64, 64), transposed(64, 3, 4, 2, 3)

    def forward(self, x):
        a = self.conv1(x)
        b = self.conv2(leaky(self.conv1_down(a)))
        return self.conv_bottom(leaky(self.conv3(leaky(self.conv2_up(b)) + cut(a, 4))))


class CuganSecond(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv1_down, self.conv2 = Pair(3, 32, 64, False), valid(64, 64, 2, 2), Pair(64, 64, 128, True)
        self.conv2_down, self.conv3, self.conv3_up = valid(128, 128, 2, 2), Pair(128, 256, 128, True), transposed(128, 128, 2, 2)
        self.conv4, self.conv4_up = Pair(128, 64, 64, True), transposed(64, 64, 2, 2)
        self.conv5, self.conv_bottom = valid(64, 64), valid(64, 3)

    def forward(self, x):
        a = self.conv1(x)
        b = self.conv2(leaky(self.conv1_down(a)))
        c = self.conv4(leaky(self.conv3_up(self.conv3(leaky(self.conv2_down(b))))) + cut(b, 4))
        return self.conv_bottom(leaky(self.conv5(leaky(self.conv4_up(c)) + cut(a, 16))))


class Cugan(nn.Module):
    """Real-CUGAN x2 for pictures of even sides."""

    def __init__(self):
        super().__init__()
        self.unet1, self.unet2 = CuganFirst(), CuganSecond()

    def forward(self, x):
        z = self.unet1(F.pad(x, (18, 18, 18, 18), "reflect"))
        return self.unet2(z) + cut(z, 20)


# ---- weights ----

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


@torch.no_grad()
def randomise(model, seed=0):
    g = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            fan = module.weight[0].numel()
            if isinstance(module, nn.ConvTranspose2d):  # [in, out, k, k]: the number of products in one result
                fan = module.weight[:, 0].numel() / module.stride[0] ** 2
            module.weight.normal_(0, module.gain / math.sqrt(fan), generator=g)
            if module.bias is not None:
                module.bias.normal_(0, 0.01, generator=g)
        elif isinstance(module, nn.GroupNorm):
            module.weight.uniform_(0.8, 1.2, generator=g)
            module.bias.normal_(0, 0.01, generator=g)
        elif isinstance(module, nn.PReLU):
            module.weight.uniform_(0.1, 0.3, generator=g)
    return model


def write(path, state, dtype):
    tensors = {key: t.detach().to("cpu", dtype).contiguous() for key, t in state.items()}
    header, offset = {}, 0
    for key, t in tensors.items():
        size = t.numel() * t.element_size()
        header[key] = {"dtype": DTYPES[dtype], "shape": list(t.shape), "data_offsets": [offset, offset + size]}
        offset += size
    blob = json.dumps(header).encode()
    blob += b" " * (-len(blob) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(blob)) + blob)
        for t in tensors.values():
            f.write(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))


def read(path):
    data = bytearray(open(path, "rb").read())
    length = struct.unpack("<Q", data[:8])[0]
    dtypes = {name: dtype for dtype, name in DTYPES.items()}
    state = {}
    for key, t in json.loads(data[8 : 8 + length]).items():
        if key != "__metadata__":
            first, last = (8 + length + at for at in t["data_offsets"])
            raw = torch.frombuffer(data, dtype=torch.uint8, offset=first, count=last - first)
            state[key] = raw.view(dtypes[t["dtype"]]).reshape(t["shape"])
    return state
