"""PVTv2-b0 written out plainly: tokens in rows, keys and values in one layer, softmax by hand."""

import torch
from torch.nn import functional

WIDTHS, HEADS, RATIOS, REDUCTIONS = (32, 64, 160, 256), (1, 2, 5, 8), (8, 8, 4, 4), (8, 4, 2, 1)


def checkpoint_shapes(channels=3):
    """Names and shapes of a public checkpoint of b0, its classifier included."""
    shapes = {}

    def layer(name, *weight, bias=True):
        shapes[f"{name}.weight"] = weight
        if bias:
            shapes[f"{name}.bias"] = weight[:1]

    inputs = channels
    for stage, (width, ratio, reduction) in enumerate(
        zip(WIDTHS, RATIOS, REDUCTIONS, strict=True), 1
    ):
        kernel = 7 if stage == 1 else 3
        layer(f"patch_embed{stage}.proj", width, inputs, kernel, kernel)
        layer(f"patch_embed{stage}.norm", width)
        for block in (f"block{stage}.0", f"block{stage}.1"):
            layer(f"{block}.norm1", width)
            layer(f"{block}.attn.q", width, width)
            layer(f"{block}.attn.kv", 2 * width, width)
            layer(f"{block}.attn.proj", width, width)
            if reduction > 1:
                layer(f"{block}.attn.sr", width, width, reduction, reduction)
                layer(f"{block}.attn.norm", width)
            layer(f"{block}.norm2", width)
            layer(f"{block}.mlp.fc1", ratio * width, width)
            layer(f"{block}.mlp.dwconv.dwconv", ratio * width, 1, 3, 3)
            layer(f"{block}.mlp.fc2", width, ratio * width)
        layer(f"norm{stage}", width)
        inputs = width
    layer("head", 1000, WIDTHS[-1])
    return shapes


def random_checkpoint(channels=3, precision=torch.float32, seed=0):
    """A checkpoint with values that let every tensor matter."""
    rng = torch.Generator().manual_seed(seed)
    made = {}
    for name, shape in checkpoint_shapes(channels).items():
        fan_in = max(1, torch.Size(shape[1:]).numel())
        made[name] = torch.randn(shape, generator=rng, dtype=precision) / fan_in**0.5
        if "norm" in name and name.endswith("weight"):
            made[name] = 1 + 0.1 * made[name]
    return made


def plain_features(state, images):
    """The four maps that a checkpoint makes of images, without dropped paths."""
    maps, below = [], images
    for stage, (heads, reduction) in enumerate(zip(HEADS, REDUCTIONS, strict=True), 1):
        embedded = conv(state, f"patch_embed{stage}.proj", below, stride=4 if stage == 1 else 2)
        height, width = embedded.shape[2:]
        tokens = norm(state, f"patch_embed{stage}.norm", rows(embedded), 1e-5)
        for block in (f"block{stage}.0", f"block{stage}.1"):
            seen = norm(state, f"{block}.norm1", tokens, 1e-6)
            tokens = tokens + attention(state, f"{block}.attn", seen, height, heads, reduction)
            seen = norm(state, f"{block}.norm2", tokens, 1e-6)
            tokens = tokens + perceptron(state, f"{block}.mlp", seen, height)
        below = grid(norm(state, f"norm{stage}", tokens, 1e-6), height)
        assert below.shape[3] == width
        maps.append(below)
    return maps


def attention(state, name, tokens, height, heads, reduction):
    channels = tokens.shape[2]
    source = tokens
    if reduction > 1:
        weight, bias = state[f"{name}.sr.weight"], state[f"{name}.sr.bias"]
        reduced = functional.conv2d(grid(tokens, height), weight, bias, stride=reduction)
        source = norm(state, f"{name}.norm", rows(reduced), 1e-5)
    query = linear(state, f"{name}.q", tokens)
    both = linear(state, f"{name}.kv", source)
    results = []
    size = channels // heads
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        keys, values = both[:, :, :channels][:, :, own], both[:, :, channels:][:, :, own]
        weights = (query[:, :, own] @ keys.transpose(1, 2) / size**0.5).softmax(2)
        results.append(weights @ values)
    return linear(state, f"{name}.proj", torch.cat(results, 2))


def perceptron(state, name, tokens, height):
    inner = grid(linear(state, f"{name}.fc1", tokens), height)
    weight, bias = state[f"{name}.dwconv.dwconv.weight"], state[f"{name}.dwconv.dwconv.bias"]
    inner = functional.conv2d(inner, weight, bias, padding=1, groups=len(weight))
    return linear(state, f"{name}.fc2", functional.gelu(rows(inner)))


def linear(state, name, tokens):
    return tokens @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def conv(state, name, maps, stride):
    weight = state[f"{name}.weight"]
    padding = weight.shape[2] // 2
    return functional.conv2d(maps, weight, state[f"{name}.bias"], stride, padding)


def norm(state, name, tokens, small):
    weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
    return functional.layer_norm(tokens, weight.shape, weight, bias, small)


def rows(maps):
    return maps.flatten(2).transpose(1, 2)


def grid(tokens, height):
    return tokens.transpose(1, 2).unflatten(2, (height, -1))
