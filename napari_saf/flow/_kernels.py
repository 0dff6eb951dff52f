"""The steps of the flows as loops over the pixels of a grid, compiled by numba.

The functions at the end are compiled by `_kernel_compiler.py`, and called from `_fused`.

Fields have their columns first, (n_columns, n_nodes), so that every loop goes over neighbouring
nodes and is vectorised whatever the number of columns. A tile of a grid, with a rim as wide as the
window, is worked through slice by slice along the first axis, in memory that stays in the caches:
what is averaged never becomes a field. An image in 2-D has one row a slice.

Pointers are those of arrays in C order; `o` is where something begins in one, `t` the distance
between columns in it, m the number of nodes in a row of a tile. Slopes, which are softmaxes, are
stored in units of 1 / 65535, 16 bits, and the sketch in units that its factors hold.
"""

from collections import namedtuple

import numpy as np
from _kernel_rows import (
    LEAST_EXPONENT,
    add_along_rows,
    add_weighted,
    decode,
    exp,
    exponentials,
    f32,
    f64,
    fetch,
    fetch_row,
    fetch_state,
    i32,
    inner,
    kernel,
    log,
    mix,
    normalise,
)
from numba import types

FLOOR = f32(np.log(1e-10))
ROW = 512
WHOLE = f32(65535)

Job = namedtuple(
    "Job",
    "v s before ahead_s ahead highest a b c1 c2 c3 cost sketch factors seeds weights offsets first "
    "places inverse n c r depth height width rz ry rx n_positions is_masked has_seeds is_self "
    "is_mixed n_images scratch sums",
)
"""A step of a whole grid: fields, factors, and the geometry; see `step`."""

Tile = namedtuple("Tile", "z0 z1 y0 y1 x0 x1 w ph pw t ring raw total lines one two three row")
"""A box of pixels, how long rows are in memory without the rim, w, and with it, pw, how many rows
there are with it, ph, and where the buffers begin in the scratch memory."""


@kernel
def nodes(job, row, x0, x1):
    """The first node of the pixels x0 to x1 of a row, and the end."""
    if not job.is_masked:
        return row * job.width + x0, row * job.width + x1
    low, end = job.first[row], job.first[row + 1]
    found = low, end
    for side in range(2):
        bound = x1 if side else x0
        begin, stop = low, end
        while begin < stop:
            middle = (begin + stop) // 2
            if job.places[middle] < bound:
                begin = middle + 1
            else:
                stop = middle
        found = (begin, end) if side == 0 else (found[0], begin)
    return found


@kernel
def likelihood(job, tile, o, t, i, m):
    """P + g(W) / rho of a row: g = -D, or the gradient in its factors."""
    u, c, row, own = job.scratch, job.c, tile.row, job.r * job.c
    for x in range(m):
        u[row + x] = f32(0)
    for j in range(c):
        k, to, two = j * job.n + i, o + j * t, tile.two + j * tile.t
        if job.is_self:
            fetch_state(job.v, job.s, job.before, k + job.width, m)
        if job.is_mixed:
            for x in range(m):
                p = job.v[k + x] + job.a * f32(job.s[k + x]) + job.b * f32(job.before[k + x])
                e = exp(p)
                u[to + x] = p
                u[two + x] = e
                u[row + x] += e
        elif job.is_self:
            constant = job.factors[own + j]
            for x in range(m):
                slopes = job.a * f32(job.s[k + x]) + job.b * f32(job.before[k + x])
                u[to + x] = job.v[k + x] + constant + slopes
        else:
            factor = job.factors[0]
            for x in range(m):
                slopes = job.a * f32(job.s[k + x]) + job.b * f32(job.before[k + x])
                u[to + x] = job.v[k + x] + factor * job.cost[k + x] + slopes
    if job.is_mixed:
        normalise(u, tile.two, tile.t, c, m, row)
        mix(u, o, t, c, m, u, tile.two, tile.t, c, job.factors, own)
    for k in range(0, job.r if job.is_self else 0, 4):
        rows = min(4, job.r - k)
        decode(u, tile.three, tile.t, rows, m, job.sketch, i + k * job.n, job.n, job.width)
        mix(u, o, t, c, m, u, tile.three, tile.t, rows, job.factors, k * c)


@kernel
def slab(job, tile, z, raw):
    """The likelihood of a slice of the tile with its rim, zero where no node is."""
    u, t, plane = job.scratch, tile.t, tile.ph * tile.pw
    x0, x1 = max(0, tile.x0 - job.rx), min(job.width, tile.x1 + job.rx)
    y0, y1 = max(0, tile.y0 - job.ry), min(job.height, tile.y1 + job.ry)
    is_there = 0 <= z < job.depth
    if job.is_masked or not is_there:
        for k in range(raw, raw + job.c * plane):
            u[k] = f32(0)
    if not is_there:
        return
    for y in range(y0, y1):
        to = raw + (y - tile.y0 + job.ry) * tile.pw - tile.x0 + job.rx
        i, end = nodes(job, z * job.height + y, x0, x1)
        m = end - i
        if m == 0:
            continue
        if not job.is_masked:
            likelihood(job, tile, to + x0, plane, i, m)
            continue
        likelihood(job, tile, tile.one, t, i, m)
        for j in range(job.c):
            for x in range(m):
                u[to + j * plane + job.places[i + x]] = u[tile.one + j * t + x]


@kernel
def add_slab(job, tile, slot):
    """Box sums: along x anew, along y and z by what enters and what leaves the window."""
    u, w, m, n_rows = job.scratch, tile.w, tile.x1 - tile.x0, tile.y1 - tile.y0
    for j in range(job.c):
        for y in range(tile.ph):
            o = tile.raw + (j * tile.ph + y) * tile.pw
            add_along_rows(u, o, tile.lines + y * w, m, 2 * job.rx + 1)
        for x in range(m):
            u[tile.row + x] = f32(0)
        for y in range(2 * job.ry):
            for x in range(m):
                u[tile.row + x] += u[tile.lines + y * w + x]
        for y in range(n_rows):
            new = tile.lines + (y + 2 * job.ry) * w
            old = tile.lines + y * w
            to = tile.total + (j * n_rows + y) * w
            ring = tile.ring + ((slot * job.c + j) * n_rows + y) * w
            for x in range(m):
                total = u[tile.row + x] + u[new + x]
                u[to + x] += total - u[ring + x]
                u[ring + x] = total
                u[tile.row + x] = total - u[old + x]


@kernel
def reach(k, r, side):
    """How many of the places k - r to k + r there are."""
    return min(k + r, side - 1) - max(k - r, 0) + 1


@kernel
def average(job, tile, z, y, i, m):
    """Where the sums over the window of a row begin, and the distance between their columns.

    What they are multiplied by to be means is in the row.
    """
    u, t, n_rows = job.scratch, tile.t, tile.y1 - tile.y0
    o, stride = tile.total + (y - tile.y0) * tile.w, n_rows * tile.w
    if job.n_positions:
        weigh(job, tile, z, y, tile.x1 - tile.x0)
        o, stride = tile.total, tile.w
    count = reach(z, job.rz, job.depth) * reach(y, job.ry, job.height)
    for x in range(m):
        if job.is_masked or job.n_positions:
            u[tile.row + x] = job.inverse[i + x]
        else:
            u[tile.row + x] = f32(1) / f32(count * reach(tile.x0 + x, job.rx, job.width))
    if not job.is_masked:
        return o, stride
    for j in range(job.c):
        for x in range(m):
            u[tile.one + j * t + x] = u[o + j * stride + job.places[i + x] - tile.x0]
    return tile.one, t


@kernel
def weigh(job, tile, z, y, width):
    """sum_o w_o(p) L(p + o) over the positions o of the window, for each pixel p of a row.

    Four positions at a time.
    """
    u, w, plane, c = job.scratch, job.weights, tile.ph * tile.pw, job.c
    for k in range(tile.total, tile.total + c * tile.w):
        u[k] = f32(0)
    fours = job.n_positions // 4 * 4
    for k in range(0, fours, 4):
        w0, o0 = position(job, tile, z, y, k)
        w1, o1 = position(job, tile, z, y, k + 1)
        w2, o2 = position(job, tile, z, y, k + 2)
        w3, o3 = position(job, tile, z, y, k + 3)
        add_weighted(u, tile.total, tile.w, c, width, plane, (o0, o1, o2, o3), w, (w0, w1, w2, w3))
    for k in range(fours, job.n_positions):
        w0, o0 = position(job, tile, z, y, k)
        for j in range(c):
            for x in range(width):
                u[tile.total + j * tile.w + x] += f32(w[w0 + x]) * u[o0 + j * plane + x]


@kernel
def position(job, tile, z, y, k):
    """Where the weights and the neighbours at a position of the window begin, of a row of pixels.

    w_o(p) = w_-o(p + o) where the images of weights are those of half of the positions. Where there
    is no neighbour any weights will do: the likelihood there is 0.
    """
    dz, dy, dx = job.offsets[3 * k], job.offsets[3 * k + 1], job.offsets[3 * k + 2]
    slot = (z + dz + job.rz) % (2 * job.rz + 1)
    row = slot * job.c * tile.ph + y + dy - tile.y0 + job.ry
    o, x0 = tile.ring + row * tile.pw + dx + job.rx, tile.x0
    is_mirrored = k >= job.n_images
    if is_mirrored:
        k, x0 = job.n_positions - 1 - k, x0 + dx
        z, y = min(max(z + dz, 0), job.depth - 1), min(max(y + dy, 0), job.height - 1)
    w = ((k * job.depth + z) * job.height + y) * job.width + x0
    if not is_mirrored:
        fetch_row(job.weights, w + job.width, tile.x1 - tile.x0, 32)
    return w, o


@kernel
def correct(job, tile, i, m, mean, stride):
    """S = softmax of the means; V <- V + c1 S0 + c2 S + c3 S', normalised; W = softmax(P).

    Of V also how certain it is: the largest of its assignment is 1 / Z, Z = sum_j exp V_j, and the
    entropy log Z - sum_j exp(V_j) V_j / Z.
    """
    u, t, c, n, row, top = job.scratch, tile.t, job.c, job.n, tile.row, tile.three
    product, total = top + t, top + 2 * t
    exponentials(u, tile.one, t, c, m, mean, stride, row, top, total)
    for x in range(m):
        u[row + x] = f32(1) / u[total + x]
        u[product + x] = f32(0)
        u[total + x] = f32(0)
        u[top + x] = LEAST_EXPONENT
    for j in range(c):
        k, o, two = j * n + i, tile.one + j * t, tile.two + j * t
        fetch_row(job.ahead_s, k + job.width, m, 32)
        for x in range(m):
            slope = u[o + x] * u[row + x]
            s, before = f32(job.s[k + x]), f32(job.before[k + x])
            e = exp(job.v[k + x] + job.a * s + job.b * before)
            value = job.v[k + x] + job.c1 * s + job.c2 * slope + job.c3 * before
            job.ahead_s[k + x] = np.uint16(i32(WHOLE * slope + f32(0.5)))
            u[two + x] = e
            u[total + x] += e
            u[o + x] = value
            u[top + x] = max(u[top + x], value)
    for x in range(m):
        u[row + x] = f32(0)
        if job.has_seeds and job.seeds[i + x] >= 0:
            u[top + x] = f32(0)
            for j in range(c):
                u[tile.one + j * t + x] = f32(0) if j == job.seeds[i + x] else FLOOR
    for j in range(c):
        k, o = j * n + i, tile.one + j * t
        fetch_row(job.ahead, k + job.width, m, 16)
        for x in range(m):
            value = max(u[o + x] - u[top + x], FLOOR)
            e = exp(value)
            job.ahead[k + x] = value
            u[o + x] = e
            u[product + x] += e * value
            u[row + x] += e
    entropy = f32(0)
    for x in range(m):
        z = u[row + x]
        u[row + x] = f32(1) / z
        job.highest[i + x] = u[row + x]
        entropy += log(z) - u[product + x] * u[row + x]
    job.sums[1] += entropy
    compare(job, tile, i, m)


@kernel
def compare(job, tile, i, m):
    """Sums of |U - W|, the estimate of the error, and of W D, W and W^2, over a row.

    exp U is in buffer one, 1 over its sums in the row, exp P in buffer two.
    """
    u, t, c, sums, row = job.scratch, tile.t, job.c, job.sums, tile.row
    total = tile.three + 2 * t
    for x in range(m):
        u[total + x] = f32(1) / u[total + x]
    for j in range(c):
        one, two = tile.one + j * t, tile.two + j * t
        error = f32(0)
        for x in range(m):
            w = u[two + x] * u[total + x]
            u[two + x] = w
            error += abs(u[one + x] * u[row + x] - w)
        sums[0] += error
        if not job.is_self:
            cost, mass, square = f32(0), f32(0), f32(0)
            for x in range(m):
                w = u[two + x]
                cost += w * job.cost[j * job.n + i + x]
                mass += w
                square += w * w
            sums[2] += cost
            sums[3 + j] += mass
            sums[3 + c + j] += square


@kernel
def step_tile(job, tile):
    """Slice by slice: what enters the window, and what is complete with it."""
    slots = 2 * job.rz + 1
    for z in range(tile.z0 - job.rz, tile.z1 + job.rz):
        slot = (z + job.rz) % slots
        if job.n_positions:
            slab(job, tile, z, tile.ring + slot * job.c * tile.ph * tile.pw)
        else:
            slab(job, tile, z, tile.raw)
            add_slab(job, tile, slot)
        done = z - job.rz
        if done < tile.z0:
            continue
        for y in range(tile.y0, tile.y1):
            i, end = nodes(job, done * job.height + y, tile.x0, tile.x1)
            if end > i:
                mean, stride = average(job, tile, done, y, i, end - i)
                correct(job, tile, i, end - i, mean, stride)


@kernel
def begin(job, box):
    """The tile of a box, its buffers one after another in the scratch memory; those of sums 0."""
    z0, z1, y0, y1, x0, x1 = box[0], box[1], box[2], box[3], box[4], box[5]
    ph, w = y1 - y0 + 2 * job.ry, (x1 - x0 + 15) // 16 * 16
    t = pw = (x1 - x0 + 2 * job.rx + 15) // 16 * 16
    slice_size, raw_size = job.c * (y1 - y0) * w, job.c * ph * pw
    ring = -job.rx % 16  # so that a row begins at a multiple of 16 behind the rim
    raw = ring + (2 * job.rz + 1) * (raw_size if job.n_positions else slice_size)
    total = (raw + raw_size + 15) // 16 * 16
    lines = total + slice_size
    one = lines + ph * w
    two = one + job.c * t
    three = two + job.c * t
    row = three + 4 * t
    for k in range(lines):
        job.scratch[k] = f32(0)
    return Tile(z0, z1, y0, y1, x0, x1, w, ph, pw, t, ring, raw, total, lines, one, two, three, row)


Floats, Doubles = types.CPointer(types.float32), types.CPointer(types.float64)
Whole, Places = types.CPointer(types.int64), types.CPointer(types.int32)
Slopes, Sketch = types.CPointer(types.uint16), types.CPointer(types.int16)


def step(
    v, s, before, ahead_s, ahead, highest, numbers, cost, sketch, factors, seeds, weights, offsets,
    first, places, inverse, grid, box, scratch, sums,
):  # fmt: skip
    """Evaluate the right-hand side and correct the state in a tile of a grid."""
    job = Job(
        v, s, before, ahead_s, ahead, highest, f32(numbers[0]) / WHOLE, f32(numbers[1]) / WHOLE,
        f32(numbers[2]) / WHOLE, f32(numbers[3]), f32(numbers[4]) / WHOLE, cost, sketch, factors,
        seeds, weights, offsets, first, places, inverse, grid[0], grid[1], grid[2], grid[3],
        grid[4], grid[5], grid[6], grid[7], grid[8], grid[9], grid[10], grid[11], grid[12],
        grid[13], grid[14], scratch, sums,
    )  # fmt: skip
    step_tile(job, begin(job, box))


def overlap(v, s, before, numbers, sketch, grid, box, scratch, sums):
    """Sums of W and W^2, or W'W, and Phi'W, of the nodes of a box; W = softmax(V + a S + b S')."""
    n, c, r, is_mixed = grid[0], grid[1], grid[2], grid[13]
    first = c * c if is_mixed else 2 * c
    four, row = ROW * c, ROW * (c + 4)
    a, b = f32(numbers[0]) / WHOLE, f32(numbers[1]) / WHOLE
    for i in range(box[0], box[1], ROW):
        m = min(ROW, box[1] - i)
        for x in range(m):
            scratch[row + x] = f32(0)
        for j in range(c):
            k = j * n + i
            fetch_state(v, s, before, k + ROW, ROW)
            for x in range(m):
                e = exp(v[k + x] + a * f32(s[k + x]) + b * f32(before[k + x]))
                scratch[j * ROW + x] = e
                scratch[row + x] += e
        normalise(scratch, 0, ROW, c, m, row)
        if is_mixed:
            # Gradients grow with the inverses of small eigenvalues, which float32 loses.
            inner(scratch, 0, ROW, c, m, scratch, 0, ROW, c, sums, 0, f64, True)
        else:
            for j in range(c):
                mass, square = f32(0), f32(0)
                for x in range(m):
                    w = scratch[j * ROW + x]
                    mass += w
                    square += w * w
                sums[j] += mass
                sums[c + j] += square
        for k in range(0, r, 4):
            rows = min(4, r - k)
            decode(scratch, four, ROW, rows, m, sketch, i + k * n, n, ROW)
            inner(scratch, 0, ROW, c, m, scratch, four, ROW, rows, sums, first + k * c, f32, False)


def read(v, labels, grid, box, scratch, sums):
    """Labels of nodes, how many changed, and how many there are of each.

    A label stays where it is one of the largest, whose coordinates are 0.
    """
    n, last, count = grid[0], 0, 0
    for i in range(box[0], box[1]):
        ahead = min(i + 64, box[1] - 1)
        fetch(v, labels[ahead] * n + ahead)
        label = labels[i]
        if v[label * n + i] < 0:
            label = 0
            while v[label * n + i] < 0:
                label += 1
            labels[i] = label
            sums[0] += 1
        if label != last:
            sums[1 + last] += count
            last, count = label, 0
        count += 1
    sums[1 + last] += count


SIGNATURES = {
    step: [
        Floats, Slopes, Slopes, Slopes, Floats, Floats, Doubles, Floats, Sketch, Floats, Whole,
        Slopes, Whole, Whole, Places, Floats, Whole, Whole, Floats, Doubles,
    ],
    overlap: [Floats, Slopes, Slopes, Doubles, Sketch, Whole, Whole, Floats, Doubles],
    read: [Floats, Whole, Whole, Whole, Floats, Doubles],
}  # fmt: skip
