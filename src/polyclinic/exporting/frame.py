"""What stands around a network in an exported graph: the task's preparing, and the way back.

These functions say in ONNX what `data/preparing.py` and `data/resizing.py` say in numpy. They are
never called: onnxscript reads them and makes functions of the graph. Cropping to content stays
outside, because which lines are content must be asked of the pixels before their size is known.
"""

# ruff: noqa: ANN001, ANN201, ARG001, D103, RUF059
# mypy: ignore-errors

from onnxscript import opset20 as op
from onnxscript import script
from onnxscript.values import Opset

OPSET = 20
DOMAIN = "polyclinic"
ours = Opset(DOMAIN, 1)

# ONNX's numbers of types: 1 float, 2 byte, 7 int64, 11 double.


@script(ours)
def triangle(length, new):
    scale = op.Cast(length, to=11) / op.Cast(new, to=11)
    there = op.Cast(op.Range(0, new, 1), to=11) + 0.5
    here = op.Cast(op.Range(0, length, 1), to=11) + 0.5
    distances = op.Abs(here - op.Unsqueeze(there * scale, [1]))
    one = op.CastLike(1.0, scale)
    weights = op.Relu(one - distances / op.Max(one, scale))
    return op.Cast(weights / op.ReduceSum(weights, [1], keepdims=1), to=1)


@script(ours)
def resized(image, high, wide):
    shape = op.Shape(image)
    rows = triangle(op.Gather(shape, 2), high)
    columns = triangle(op.Gather(shape, 3), wide)
    return op.MatMul(op.MatMul(rows, image), op.Transpose(columns, perm=[1, 0]))


@script(ours)
def stretched(image, side: int):
    whole = op.Constant(value_int=side)
    none = op.Constant(value_int=0)
    return op.Identity(whole), op.Identity(whole), op.Identity(none), op.Identity(none)


@script(ours)
def padded(image, side: int):
    whole = op.Constant(value_int=side)
    sizes = op.Cast(op.Shape(image, start=2), to=11)
    exact = sizes * op.Cast(whole, to=11) / op.ReduceMax(sizes)
    kept = op.Max(op.Cast(op.Round(exact), to=7), op.Constant(value_ints=[1]))
    before = (whole - kept) / 2
    return op.Gather(kept, 0), op.Gather(kept, 1), op.Gather(before, 0), op.Gather(before, 1)


@script(ours)
def rounded(pixels, eight_bit):
    return op.Where(eight_bit, op.Round(pixels), pixels)


@script(ours)
def all_seen(inner):
    brightest = op.ReduceMax(inner, [1], keepdims=1)
    return op.Equal(brightest, brightest)


@script(ours)
def bright(inner, dark: float):
    limit = op.Constant(value_float=dark)
    brightest = op.ReduceMax(inner, [1], keepdims=1)
    low = op.ReduceMin(inner, [1, 2, 3], keepdims=1)
    light = op.ReduceMax(brightest, [1, 2, 3], keepdims=1) - low
    return (brightest - low) / op.Where(light == 0.0, 1.0, light) > limit


@script(ours)
def grey_levels(bound, eight_bit):
    return op.Where(eight_bit, op.Round(op.Clip(bound, 0.0, 255.0)), bound)


@script(ours)
def minmax(inner, eight_bit):
    low = op.ReduceMin(inner, [1, 2, 3], keepdims=1)
    return op.Identity(inner), low, op.ReduceMax(inner, [1, 2, 3], keepdims=1) - low


@script(ours)
def window(inner, eight_bit, lowest: float, highest: float):
    zero = op.ReduceMin(inner, [1, 2, 3], keepdims=1) * 0.0
    low = zero + op.Constant(value_float=lowest)
    high = zero + op.Constant(value_float=highest)
    clipped = op.Min(op.Max(inner, grey_levels(low, eight_bit)), grey_levels(high, eight_bit))
    return clipped, low, high - low


@script(ours)
def at_percentile(ordered, place):
    below = op.Cast(op.Floor(place), to=7)
    above = op.Cast(op.Ceil(place), to=7)
    share = op.Cast(place - op.Floor(place), to=11)
    first = op.Cast(op.Gather(ordered, below, axis=1), to=11)
    second = op.Cast(op.Gather(ordered, above, axis=1), to=11)
    return first + (second - first) * share


@script(ours)
def percentile(inner, eight_bit, lowest: float, highest: float):
    flat = op.Flatten(inner, axis=1)
    count = op.Shape(flat, start=1)
    ordered, order = op.TopK(flat, count, axis=1, largest=0, sorted=1)
    last = op.Cast(count - 1, to=11) / 100.0
    low_d = at_percentile(ordered, last * op.Cast(op.Constant(value_float=lowest), to=11))
    high_d = at_percentile(ordered, last * op.Cast(op.Constant(value_float=highest), to=11))
    low = op.Unsqueeze(op.Cast(low_d, to=1), [2, 3])
    high = op.Unsqueeze(op.Cast(high_d, to=1), [2, 3])
    clipped = op.Min(op.Max(inner, grey_levels(low, eight_bit)), grey_levels(high, eight_bit))
    return clipped, low, op.Unsqueeze(op.Cast(high_d - low_d, to=1), [2, 3])


@script(ours)
def standard(inner, eight_bit):
    exact = op.Cast(inner, to=11)
    mean = op.ReduceMean(exact, [1, 2, 3], keepdims=1)
    apart = exact - mean
    spread = op.Sqrt(op.ReduceMean(apart * apart, [1, 2, 3], keepdims=1))
    return op.Identity(inner), op.Cast(mean, to=1), op.Cast(spread, to=1)


@script(ours)
def channelwise(inner, eight_bit):
    exact = op.Cast(inner, to=11)
    mean = op.ReduceMean(exact, [2, 3], keepdims=1)
    apart = exact - mean
    spread = op.Sqrt(op.ReduceMean(apart * apart, [2, 3], keepdims=1))
    return op.Identity(inner), op.Cast(mean, to=1), op.Cast(spread, to=1)


@script(ours)
def normalised(pixels, offset, spread):
    scale = op.Where(spread > 0.0, spread, 1.0)
    return (pixels - offset) / scale, scale


@script(ours)
def in_square(normal, inner_seen, offset, scale, eight_bit, top, left, side: int, fill: float):
    around = grey_levels(offset + op.Constant(value_float=fill) * scale, eight_bit)
    sizes = op.Shape(normal, start=2)
    before = op.Concat(op.Reshape(top, [1]), op.Reshape(left, [1]), axis=0)
    after = op.Constant(value_int=side) - before - sizes
    none = op.Constant(value_ints=[0, 0])
    pads = op.Concat(none, before, none, after, axis=0)
    there = op.Pad(op.Cast(op.Equal(normal, normal), to=1), pads, 0.0) > 0.5
    seen = op.Pad(op.Cast(inner_seen, to=1), pads, 0.0) > 0.5
    return op.Where(there, op.Pad(normal, pads, 0.0), (around - offset) / scale), seen


@script(ours)
def in_sight(probabilities, seen):
    background = op.Cast(op.Range(0, op.Gather(op.Shape(probabilities), 1), 1) < 1, to=1)
    return op.Where(seen, probabilities, op.Reshape(background, [1, -1, 1, 1]))


@script(ours)
def taken_back(mean, image, high, wide, top, left):
    starts = op.Concat(op.Reshape(top, [1]), op.Reshape(left, [1]), axis=0)
    sizes = op.Concat(op.Reshape(high, [1]), op.Reshape(wide, [1]), axis=0)
    place = op.Slice(mean, starts, starts + sizes, [2, 3])
    shape = op.Shape(image)
    probabilities = resized(place, op.Gather(shape, 2), op.Gather(shape, 3))
    return probabilities, op.Cast(op.ArgMax(probabilities, axis=1, keepdims=0), to=2)
