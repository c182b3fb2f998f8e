"""SeedVR2's video autoencoder in torch, with the released file's names. It computes as the reference implementation does: a clip
in slices, and every convolution keeps frames of the slice before. Frames are [B, C, T, H, W]."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Kept:
    """Frames that convolutions take from the slice before, and frames that they keep, both in the order of their runs."""

    def __init__(self, before, keep):
        self.before, self.after = None if before is None else list(before), [] if keep else None

    def ahead(self, x, frames, keep):
        """x after the kept frames; at the start of a clip, x after `frames` copies of its first frame."""
        head = x[:, :, :1].expand(-1, -1, frames, -1, -1) if self.before is None else self.before.pop(0)
        x = torch.cat([head, x], 2)
        if self.after is not None:
            self.after.append(x[:, :, x.shape[2] - keep:].clone())
        return x


class Causal(nn.Conv3d):
    def __init__(self, i, o, k=(3, 3, 3), stride=(1, 1, 1), padding=1):
        super().__init__(i, o, k, stride, (0, padding, padding))

    def forward(self, x, kept):
        if self.kernel_size[0] > 1:
            x = kept.ahead(x, self.kernel_size[0] - 1, self.kernel_size[0] - self.stride[0])
        return super().forward(x)


def by_frame(f, x):
    b, c, t, h, w = x.shape
    y = f(x.transpose(1, 2).reshape(b * t, c, h, w))
    return y.reshape(b, t, -1, h, w).transpose(1, 2)


class Norm(nn.GroupNorm):
    def __init__(self, c):
        super().__init__(32, c, eps=1e-6)

    def forward(self, x):
        return by_frame(super().forward, x) if x.dim() == 5 else super().forward(x)


class Res(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norm1, self.conv1, self.norm2, self.conv2 = Norm(i), Causal(i, o), Norm(o), Causal(o, o)
        if i != o:
            self.conv_shortcut = nn.Conv3d(i, o, 1)

    def forward(self, x, kept):
        h = self.conv1(F.silu(self.norm1(x)), kept)
        h = self.conv2(F.silu(self.norm2(h)), kept)
        return (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x) + h


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.group_norm = Norm(c)
        self.to_q, self.to_k, self.to_v = (nn.Linear(c, c) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(c, c)])

    def frame(self, x):
        n = self.group_norm(x).flatten(2).transpose(1, 2)
        q, k, v = (f(n)[:, None] for f in (self.to_q, self.to_k, self.to_v))
        y = self.to_out[0](F.scaled_dot_product_attention(q, k, v)[:, 0])
        return x + y.transpose(1, 2).reshape(x.shape)

    def forward(self, x):
        return by_frame(self.frame, x)


class Middle(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.resnets, self.attentions = nn.ModuleList([Res(c, c), Res(c, c)]), nn.ModuleList([Attention(c)])

    def forward(self, x, kept):
        return self.resnets[1](self.attentions[0](self.resnets[0](x, kept)), kept)


class Down(nn.Module):
    def __init__(self, c, times):
        super().__init__()
        self.conv = Causal(c, c, (3 if times == 2 else 1, 3, 3), (times, 2, 2), 0)

    def forward(self, x, kept):
        return self.conv(F.pad(x, (0, 1, 0, 1)), kept)


class Up(nn.Module):
    def __init__(self, c, times):
        super().__init__()
        self.upscale_conv, self.conv, self.times = nn.Conv3d(c, c * 4 * times, 1), Causal(c, c), times

    def forward(self, x, kept):
        b, c, t, h, w = x.shape
        y = self.upscale_conv(x).view(b, 2, 2, self.times, c, t, h, w)
        y = y.permute(0, 4, 5, 3, 6, 1, 7, 2).reshape(b, c, t * self.times, 2 * h, 2 * w)
        if self.times == 2 and kept.before is None:  # a clip's first latent has only one frame
            y = torch.cat([y[:, :, :1], y[:, :, 2:]], 2)
        return self.conv(y, kept)


class Level(nn.Module):
    def __init__(self, i, o, count, name, resize):
        super().__init__()
        self.resnets = nn.ModuleList(Res(i if b == 0 else o, o) for b in range(count))
        self.resize = name if resize else None
        if resize:
            setattr(self, name, nn.ModuleList([resize]))

    def forward(self, x, kept):
        for block in self.resnets:
            x = block(x, kept)
        return getattr(self, self.resize)[0](x, kept) if self.resize else x


class Half(nn.Module):
    """Encoder or decoder of a slice. It returns the result and, with keep, the frames that the next slice needs."""

    def __init__(self, i, o, widths, count, encodes):
        super().__init__()
        times, top = ((1, 2, 2) if encodes else (2, 2, 1)), len(widths) - 1
        self.conv_in, self.mid_block = Causal(i, widths[0]), Middle(widths[-1] if encodes else widths[0])
        levels = nn.ModuleList()
        for n, width in enumerate(widths):
            resize = None if n == top else (Down if encodes else Up)(width, times[n])
            levels.append(Level(widths[max(n - 1, 0)], width, count, "downsamplers" if encodes else "upsamplers", resize))
        self.encodes, self.levels = encodes, "down_blocks" if encodes else "up_blocks"
        setattr(self, self.levels, levels)
        self.conv_norm_out, self.conv_out = Norm(widths[-1]), Causal(widths[-1], o)

    def forward(self, x, before=None, keep=False):
        kept = Kept(before, keep)
        x = self.conv_in(x, kept)
        levels = list(getattr(self, self.levels))
        for step in levels + [self.mid_block] if self.encodes else [self.mid_block] + levels:
            x = step(x, kept)
        return self.conv_out(F.silu(self.conv_norm_out(x)), kept), kept.after


class SeedVr2(nn.Module):
    def __init__(self, widths=(128, 256, 512, 512)):
        super().__init__()
        self.encoder = Half(3, 32, widths, 2, True)
        self.decoder = Half(16, 3, widths[::-1], 3, False)


def run(half, x, each=None):
    """Runs a clip through encoder or decoder, whole or in slices. The first slice has the first frame (or latent) and `each`
    more; later slices have `each`."""
    if not each or x.shape[2] <= 1 + each:
        return half(x)[0]
    before, out = None, []
    for piece in [x[:, :, :1 + each], *x[:, :, 1 + each:].split(each, 2)]:
        y, before = half(piece.contiguous(), before, True)  # the same strides for every clip
        out.append(y)
    return torch.cat(out, 2)


@torch.no_grad()
def randomise(model, seed=0):
    g = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    for module in model.modules():
        if isinstance(module, (nn.Conv3d, nn.Linear)):
            module.weight.normal_(0, 1 / math.sqrt(module.weight[0].numel()), generator=g)
            module.bias.normal_(0, 0.01, generator=g)
        elif isinstance(module, nn.GroupNorm):
            module.weight.uniform_(0.8, 1.2, generator=g)
            module.bias.normal_(0, 0.01, generator=g)
    return model
