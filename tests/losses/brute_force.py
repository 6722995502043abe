"""The weakly supervised losses by their definitions: slow, and with gradients by autograd."""

from collections import deque

import numpy as np
import torch
from torch.nn import functional


def waves(classes, channels, height, width, precision=torch.float64):
    """The inputs of the golden numbers: logits of cosine waves and an image of sine waves."""
    c, y, x = np.meshgrid(np.arange(8), np.arange(height), np.arange(width), indexing="ij")
    logits = torch.tensor(np.cos(0.5 * (c + 1) * x + 0.3 * y))[None, :classes]
    image = torch.tensor(0.5 + 0.5 * np.sin(0.7 * x + 1.3 * y + c))[None, :channels]
    return logits.to(precision).requires_grad_(), image.to(precision)


def gated_crf(probabilities, image, radius=5, sigma_xy=6.0, sigma_rgb=0.1, mask=None):
    """The published definition, with every window written out."""
    batch, _, height, width = probabilities.shape
    places = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    positions = torch.stack(places).to(image).expand(batch, -1, -1, -1)
    features = torch.cat([positions / sigma_xy, image / sigma_rgb], 1)
    differences = windows(features, radius) - features[:, :, None, None]
    kernel = (-differences.square() / 2).sum(1, keepdim=True).exp()
    kernel[:, :, radius, radius] = 0
    pixels = batch * height * width
    if mask is not None:
        chosen = mask[:, None].to(image)
        kernel = kernel * windows(chosen, radius) * chosen[:, :, None, None]
        pixels = chosen.sum().clamp(min=1)
    agreement = (kernel * windows(probabilities, radius) * probabilities[:, :, None, None]).sum()
    return (kernel.sum() - agreement) / pixels


def windows(maps, radius):
    side = 2 * radius + 1
    unfolded = functional.unfold(maps, side, padding=radius)
    return unfolded.reshape(*maps.shape[:2], side, side, *maps.shape[2:])


def tree_filter(values, guide, sigma):
    """The weights of all paths of each image's tree as a matrix, applied to the values."""
    results = []
    for image_values, image_guide in zip(values, guide, strict=True):
        paths = path_weights(image_guide, sigma)
        filtered = image_values.flatten(1) @ paths.T / paths.sum(1)
        results.append(filtered.reshape(image_values.shape))
    return torch.stack(results)


def path_weights(guide, sigma):
    """Products of exp(−d²/sigma) along the tree's paths between all pairs of pixels."""
    pixels = guide.flatten(1)
    neighbours = {pixel: [] for pixel in range(pixels.shape[1])}
    for here, there in spanning_edges(guide):
        neighbours[here].append(there)
        neighbours[there].append(here)
    rows = {0: {0: pixels.new_ones(())}}
    waiting = deque([0])
    while waiting:
        here = waiting.popleft()
        for there in set(neighbours[here]) - rows.keys():
            similarity = torch.exp(-(pixels[:, here] - pixels[:, there]).square().sum() / sigma)
            row = {known: weight * similarity for known, weight in rows[here].items()}
            for known, weight in row.items():
                rows[known][there] = weight
            rows[there] = row | {there: pixels.new_ones(())}
            waiting.append(there)
    size = range(len(rows))
    return torch.stack([torch.stack([rows[i][j] for j in size]) for i in size])


def spanning_edges(guide):
    """Kruskal's tree of an image; among equals the vertical edges first, then in reading order."""
    edges = grid_edges(*guide.shape[1:])
    cost = edge_costs(guide, edges)
    group = list(range(guide[0].numel()))
    chosen = []
    for index in np.argsort(cost, kind="stable"):
        one, other = (group[pixel] for pixel in edges[index])
        if one != other:
            group = [other if each == one else each for each in group]
            chosen.append(edges[index])
    return chosen


def edge_costs(guide, edges):
    pixels = guide.detach().flatten(1).numpy()
    return [((pixels[:, here] - pixels[:, there]) ** 2).sum() for here, there in edges]


def grid_edges(height, width):
    number = np.arange(height * width).reshape(height, width)
    down = zip(number[:-1].ravel(), number[1:].ravel(), strict=True)
    right = zip(number[:, :-1].ravel(), number[:, 1:].ravel(), strict=True)
    return [(int(here), int(there)) for here, there in (*down, *right)]
