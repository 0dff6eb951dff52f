"""Steps of the flows as loops over the pixels of a grid, compiled by numba into its cache on disk.

All is in one file: numba compiles anew when the file of a function has changed, not when those of
functions have that it calls.

Fields have their columns first, (n_columns, n_nodes), so that every inner loop runs
over neighbouring nodes and is vectorised, whatever the number of columns. A box of the grid is
worked through slice by slice along the first axis, in memory that stays in the caches, so that the
likelihood and its means never become fields. Images in 2-D have one row a slice.

Slopes are softmaxes, stored in units of 1 / 65535; the sketch (rank, n_nodes) in units that its
factors contain. Rows of scratch arrays are padded with zeros to even, or multiples of four.
"""

import hashlib
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

f32, f64, i32 = np.float32, np.float64, np.int32
FLOOR = f32(np.log(1e-10))
LEAST_EXPONENT = f32(-60)
ROW = 512
WHOLE = f32(65535)
LINE = 16
"""Floats in a cache line, at which rows begin."""

_OPTIONS = {"fastmath": True, "nogil": True, "error_model": "numpy"}
_entries = []
inline = numba.njit(**_OPTIONS)


def entry(*arguments):
    """Return the decorator of a function that is called from Python with such arguments."""

    def decorate(function):
        _entries.append((numba.njit(cache=True, **_OPTIONS)(function), arguments))
        return _entries[-1][0]

    return decorate


def load() -> None:
    """Load the machine code from the cache, or compile what is not there, for half a minute."""
    for function, arguments in _entries:
        function.compile(arguments)


def compile_all() -> None:
    """Compile, in a process of its own: the options hold for all that it compiles."""
    # Loops over many rows are vectorised where these are disjoint, which is tested before each.
    llvm.set_option("", "-runtime-memory-check-threshold=64")
    llvm.set_option("", "-hoist-runtime-checks=false")
    load()
    marker().touch()


def marker() -> Path:
    """Return the file, beside the cache, that exists if this version is compiled on such a CPU."""
    source, features = Path(__file__).stat(), llvm.get_host_cpu_features().flatten()
    versions = sys.version, numba.__version__, source.st_size, source.st_mtime_ns
    key = hashlib.sha256(repr((versions, llvm.get_host_cpu_name(), features)).encode())
    return Path(_entries[0][0].stats.cache_path) / f"kernels-{key.hexdigest()[:20]}"


_Field, _Slopes, _Sketch = types.float32[:, ::1], types.uint16[:, ::1], types.int16[:, ::1]
_State = types.Tuple((_Field, _Slopes, _Slopes))
_Numbers, _Sums, _Whole = types.float64[::1], types.float64[:, ::1], types.int64[::1]
_Boxes, _Floats = types.int64[:, ::1], types.float32[::1]


@inline
def exp(x):
    """2^(x log2 e) = 2^n 2^f, f in [-1/2, 1/2], by a polynomial: relative error 1e-7."""
    z = x * f32(1.4426950408889634)
    n = np.rint(z)
    f = z - n
    p = f32(1.327647129073739e-3) * f + f32(9.675540961325169e-3)
    p = p * f + f32(5.550713092088699e-2)
    p = p * f + f32(0.24022120237350464)
    p = p * f + f32(0.6931469440460205)
    p = p * f + f32(1.0000001192092896)
    return p * i32((i32(n) + i32(127)) << i32(23)).view(f32)


@intrinsic
def at(typing, array, row, column):
    """Return a pointer to an entry of an array (n_rows, n_columns): a slice costs more."""

    def code(context, builder, signature, arguments):
        whole = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = cgutils.unpack_tuple(builder, whole.shape, 2)[1]
        offset = builder.add(builder.mul(arguments[1], width), arguments[2])
        return builder.gep(whole.data, [offset])

    return types.CPointer(array.dtype)(array, types.intp, types.intp), code


@intrinsic
def fetch(typing, source, k):
    """Bring the cache line of source[k] into the caches; any address will do."""

    def code(context, builder, signature, arguments):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        address = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
        builder.call(call, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(source, types.intp), code


@inline
def fetch_row(source, first, m, line):
    """Fetch m numbers that are read later, in pieces too short for a processor to foresee."""
    for k in range(first, first + m + line, line):
        fetch(source, k)


@inline
def assign(state, a, b, i, m, w, total):
    """Write W = softmax(V + a S + b S') of the nodes i to i + m into rows of `w`."""
    for k in range(m):
        total[k] = 0
    for j in range(len(state[0])):
        v, s, before, row = at(state[0], j, i), at(state[1], j, i), at(state[2], j, i), at(w, j, 0)
        for k in range(m):
            row[k] = exp(v[k] + a * f32(s[k]) + b * f32(before[k]))
            total[k] += row[k]
    for k in range(m):
        total[k] = f32(1) / total[k]
    for j in range(len(state[0])):
        row = at(w, j, 0)
        for k in range(m):
            row[k] *= total[k]


@inline
def decode(sketch, first, i, m, four):
    """Write four rows of the sketch, zeros behind its last, into `four`."""
    for q in range(4):
        row = at(four, q, 0)
        if first + q < len(sketch):
            source = at(sketch, first + q, i)
            fetch_row(source, m, m, 32)
            for k in range(m):
                row[k] = f32(source[k])
        else:
            for k in range(m):
                row[k] = 0


@inline
def mix(rows, first, factors, i, out, place, m):
    """U_j <- U_j + sum_q B_qj F_q of the four rows F_q from `first` on, two columns at a time."""
    r0, r1 = at(rows, first, 0), at(rows, first + 1, 0)
    r2, r3 = at(rows, first + 2, 0), at(rows, first + 3, 0)
    for j in range(0, len(out), 2):
        a0, a1, a2, a3 = factors[i, j], factors[i + 1, j], factors[i + 2, j], factors[i + 3, j]
        u0, u1, j = at(out, j, place), at(out, j + 1, place), j + 1
        b0, b1, b2, b3 = factors[i, j], factors[i + 1, j], factors[i + 2, j], factors[i + 3, j]
        for k in range(m):
            f0, f1, f2, f3 = r0[k], r1[k], r2[k], r3[k]
            u0[k] += a0 * f0 + a1 * f1 + a2 * f2 + a3 * f3
            u1[k] += b0 * f0 + b1 * f1 + b2 * f2 + b3 * f3


@inline
def inner(rows, first, w, start, m, sums, place, number):
    """Add sum_k F_qk W_jk, in a type of numbers, of four rows F_q and of W_j from `start` on."""
    r0, r1 = at(rows, first, 0), at(rows, first + 1, 0)
    r2, r3 = at(rows, first + 2, 0), at(rows, first + 3, 0)
    for j in range(start, len(w), 2):
        w0, w1 = at(w, j, 0), at(w, j + 1, 0)
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = number(0)
        for k in range(m):
            f0, f1, f2, f3 = number(r0[k]), number(r1[k]), number(r2[k]), number(r3[k])
            a, b = number(w0[k]), number(w1[k])
            a0, a1, a2, a3 = a0 + a * f0, a1 + a * f1, a2 + a * f2, a3 + a * f3
            b0, b1, b2, b3 = b0 + b * f0, b1 + b * f1, b2 + b * f2, b3 + b * f3
        for q, (sum_a, sum_b) in enumerate(((a0, b0), (a1, b1), (a2, b2), (a3, b3))):
            sums[place + q, j] += sum_a
            sums[place + q, j + 1] += sum_b


@entry(_State, _Numbers, _Sketch, types.boolean, _Boxes, types.float64[:, :, ::1])
def overlap(state, numbers, sketch, is_mixed, boxes, sums):
    """Add up W'W if it is mixed into the gradient, else W and W^2, and Phi'W, for each box."""
    c, fours = len(state[0]), (len(state[0]) + 3) // 4 * 4
    w, four, total = np.zeros((fours, ROW), f32), np.zeros((4, ROW), f32), np.zeros(ROW, f32)
    a, b = f32(numbers[0]) / WHOLE, f32(numbers[1]) / WHOLE
    for n in range(len(boxes)):
        for i in range(boxes[n, 0], boxes[n, 1], ROW):
            m = min(ROW, boxes[n, 1] - i)
            assign(state, a, b, i, m, w, total)
            for k in range(0, c if is_mixed else 0, 4):
                # Gradients grow with the inverses of small eigenvalues, which float32 loses.
                inner(w, k, w, k, m, sums[n], k, f64)
            for j in range(0 if is_mixed else c):
                row, mass, square = at(w, j, 0), f32(0), f32(0)
                for k in range(m):
                    mass += row[k]
                    square += row[k] * row[k]
                sums[n, 0, j] += mass
                sums[n, 1, j] += square
            for k in range(0, len(sketch), 4):
                decode(sketch, k, i, m, four)
                inner(four, 0, w, 0, m, sums[n], fours + k, f32)


@inline
def likelihood(flow, i, m, buffers, out, place):
    """Write P + g(W) / rho, g = -D or the gradient in its factors, into rows of `out`."""
    (state, cost, sketch, factors, is_mixed, a, b), (w, four, total) = flow, buffers
    last = (len(sketch) + 3) // 4 * 4
    for j in range(len(state[0])):
        v, s, before, u = (
            at(state[0], j, i),
            at(state[1], j, i),
            at(state[2], j, i),
            at(out, j, place),
        )
        if len(sketch):
            constant = f32(0) if is_mixed else factors[last, j]
            fetch_row(v, m, m, 16)
            fetch_row(s, m, m, 32)
            fetch_row(before, m, m, 32)
            for k in range(m):
                u[k] = v[k] + constant + (a * f32(s[k]) + b * f32(before[k]))
        else:
            d, factor = at(cost, j, i), factors[0, 0]
            for k in range(m):
                u[k] = v[k] + factor * d[k] + (a * f32(s[k]) + b * f32(before[k]))
    for k in range(0, len(sketch), 4):
        decode(sketch, k, i, m, four)
        mix(four, 0, factors, k, out, place, m)
    if is_mixed:
        assign(state, a, b, i, m, w, total)
        for k in range(0, len(state[0]), 4):
            mix(w, k, factors, last + k, out, place, m)


@inline
def sum_along(row, out, m, side):
    """Write sums of `side` neighbours, an odd number; four at a time behind the first three."""
    for k in range(m):
        out[k] = row[k] if side == 1 else row[k] + (row[k + 1] + row[k + 2])
    first = 3
    while first + 4 <= side:
        for k in range(m):
            p = first + k
            out[k] += (row[p] + row[p + 1]) + (row[p + 2] + row[p + 3])
        first += 4
    if first < side:
        for k in range(m):
            out[k] += row[first + k] + row[first + k + 1]


@inline
def add_slice(slab, long, start, lines, ring, first, total, n_rows, m, ry, side):
    """Update the sums over windows by a slice that enters and the one in the ring, which leaves."""
    line = at(lines, len(lines) - 1, 0)
    for j in range(len(total)):
        for y in range(n_rows + 2 * ry):
            sum_along(at(slab, j, y * long + start), at(lines, y, 0), m, side)
        for k in range(m):
            line[k] = 0
        for y in range(2 * ry):
            enters = at(lines, y, 0)
            for k in range(m):
                line[k] += enters[k]
        for y in range(n_rows):
            enters, leaves = at(lines, y + 2 * ry, 0), at(lines, y, 0)
            sums, past = at(total, j, y * m), at(ring, first + j, y * m)
            for k in range(m):
                whole = line[k] + enters[k]
                sums[k] += whole - past[k]
                past[k] = whole
                line[k] = whole - leaves[k]


@inline
def weigh(weights, offsets, slabs, even, long, margin, total, four, sides, radii, box, z, y):
    """Write sum_o w_o(p) L(p + o) of a row of pixels p, four positions o of the window at a time.

    Where there are images of weights for half of the positions, w_o(p) = w_-o(p + o).
    """
    (depth, height, width), (rz, ry, _), x0, x1 = sides, radii, box[4], box[5]
    n_positions, m = len(offsets), x1 - x0
    rows, starts = np.zeros(4, np.int64), np.zeros(4, np.int64)
    total[:] = 0
    for first in range(0, n_positions, 4):
        for q in range(4):
            row = at(four, q, 0)
            for k in range(m):
                row[k] = 0
            if first + q >= n_positions:
                continue
            dz, dy, dx = offsets[first + q, 0], offsets[first + q, 1], offsets[first + q, 2]
            rows[q] = (z + dz + rz) % (2 * rz + 1) * even
            starts[q] = (y + dy - box[2] + ry) * long + margin + dx
            if not (0 <= z + dz < depth and 0 <= y + dy < height):
                continue
            image, pixel = first + q, (z * height + y) * width
            if image >= len(weights):
                image, pixel = n_positions - 1 - image, pixel + (dz * height + dy) * width + dx
            begin, end, part = (
                max(0, -dx - x0),
                min(m, width - dx - x0),
                at(weights, image, pixel + x0),
            )
            for k in range(begin, end):
                row[k] = f32(part[k])
        w0, w1, w2, w3 = at(four, 0, 0), at(four, 1, 0), at(four, 2, 0), at(four, 3, 0)
        for j in range(even):
            a0, a1 = at(slabs, rows[0] + j, starts[0]), at(slabs, rows[1] + j, starts[1])
            a2, a3 = at(slabs, rows[2] + j, starts[2]), at(slabs, rows[3] + j, starts[3])
            sums = at(total, j, 0)
            for k in range(m):
                sums[k] += w0[k] * a0[k] + w1[k] * a1[k] + (w2[k] * a2[k] + w3[k] * a3[k])


@inline
def correct(flow, c1, c2, c3, out, seeds, scale, i, m, means, place, work, buffers):
    """Write S = softmax of the means times `scale`, and V + c1 S0 + c2 S + c3 S', normalised.

    Unnormalised assignments of V and of P, and what they are divided by, are left in the buffers.
    """
    (state, _, _, _, _, a, b), (w, four, total), (ahead_s, ahead, _) = flow, buffers, out
    top, product, z, c = at(four, 0, 0), at(four, 1, 0), at(four, 2, 0), len(state[0])
    for k in range(m):
        top[k] = -np.inf
        z[k] = product[k] = total[k] = 0
    for j in range(c):
        mean = at(means, j, place)
        for k in range(m):
            top[k] = max(top[k], mean[k])
    for j in range(c):
        mean, row = at(means, j, place), at(work, j, 0)
        for k in range(m):
            row[k] = exp(max((mean[k] - top[k]) * scale[k], LEAST_EXPONENT))
            z[k] += row[k]
    for k in range(m):
        z[k] = f32(1) / z[k]
        top[k] = LEAST_EXPONENT
    for j in range(c):
        v, s, before, own = at(state[0], j, i), at(state[1], j, i), at(state[2], j, i), at(w, j, 0)
        row, slopes = at(work, j, 0), at(ahead_s, j, i)
        fetch_row(slopes, m, m, 32)
        for k in range(m):
            slope = row[k] * z[k]
            slopes[k] = np.uint16(i32(WHOLE * slope + f32(0.5)))
            own[k] = exp(v[k] + a * f32(s[k]) + b * f32(before[k]))
            total[k] += own[k]
            row[k] = v[k] + c1 * f32(s[k]) + c2 * slope + c3 * f32(before[k])
            top[k] = max(top[k], row[k])
    for k in range(m if len(seeds) else 0):
        if seeds[i + k] >= 0:
            top[k] = f32(0)
            for j in range(c):
                work[j, k] = f32(0) if j == seeds[i + k] else FLOOR
    for k in range(m):
        z[k] = 0
    for j in range(c):
        row, values = at(work, j, 0), at(ahead, j, i)
        fetch_row(values, m, m, 16)
        for k in range(m):
            value = max(row[k] - top[k], FLOOR)
            values[k] = value
            row[k] = exp(value)
            product[k] += row[k] * value
            z[k] += row[k]


@inline
def compare(cost, largest, i, m, work, buffers, sums):
    """Add up the error |U - W|, the entropy, and W D, W and W^2, by what `correct` left.

    The largest assignment of a node is 1 / Z, Z = sum_j exp V_j, and its entropy
    log Z - sum_j exp(V_j) V_j / Z.
    """
    w, four, total = buffers
    product, z, entropy, c = at(four, 1, 0), at(four, 2, 0), 0.0, len(cost)
    for first in range(0, m, 32):
        factor, part = 1.0, f32(0)
        for k in range(first, min(first + 32, m)):
            factor *= z[k]
            z[k] = f32(1) / z[k]
            largest[k] = z[k]
            total[k] = f32(1) / total[k]
            part += product[k] * z[k]
        entropy += np.log(factor) - part
    sums[1] += entropy
    for j in range(len(work)):
        row, own, error = at(work, j, 0), at(w, j, 0), f32(0)
        for k in range(m):
            own[k] *= total[k]
            error += abs(row[k] * z[k] - own[k])
        sums[0] += error
        if j < c:
            d, costs, mass, square = at(cost, j, i), f32(0), f32(0), f32(0)
            for k in range(m):
                costs += own[k] * d[k]
                mass += own[k]
                square += own[k] * own[k]
            sums[2] += costs
            sums[3 + j] += mass
            sums[3 + c + j] += square


@inline
def nodes(n_before, start, begin, end):
    """Return the first node of a range of pixels, and the end; `n_before` counts those before."""
    if len(n_before):
        begin, end = n_before[begin], n_before[end]
    return start + begin, start + end


@entry(
    _State, _Numbers, types.Tuple((_Slopes, _Field, _Floats)), _Field, _Sketch, _Field,
    types.boolean, _Whole, types.uint16[:, ::1], _Boxes, _Floats, _Whole, _Whole, _Whole, _Boxes,
    _Sums,
)  # fmt: skip
def step(
    state, numbers, out, cost, sketch, factors, is_mixed, seeds, weights, offsets, inverse,
    n_before, pixels, geometry, boxes, sums,
):  # fmt: skip
    """Evaluate the right-hand side and correct the state in boxes of a grid; see `_fused.Grid`.

    The nodes of the grid begin at `start`; weights of slopes, `numbers`, are as `Fused.attempt`
    gives them.
    """
    sides, radii = (geometry[0], geometry[1], geometry[2]), (geometry[3], geometry[4], geometry[5])
    start = geometry[6]
    a, b = f32(numbers[0]) / WHOLE, f32(numbers[1]) / WHOLE
    c1, c2, c3 = f32(numbers[2]) / WHOLE, f32(numbers[3]), f32(numbers[4]) / WHOLE
    flow = state, cost, sketch, factors, is_mixed, a, b
    (depth, height, width), (rz, ry, rx), c = sides, radii, len(state[0])
    is_weighted, is_masked, n_slots = len(offsets) > 0, len(n_before) > 0, 2 * rz + 1
    most_y, most_x = (boxes[:, 3] - boxes[:, 2]).max(), (boxes[:, 5] - boxes[:, 4]).max()
    margin = (rx + LINE - 1) // LINE * LINE
    long = (most_x + margin + rx + LINE - 1) // LINE * LINE
    even, fours, most = (c + 1) // 2 * 2, (c + 3) // 4 * 4, most_y * most_x
    lines = np.empty((most_y + 2 * ry + 1, long), f32)
    slabs = np.empty(((n_slots if is_weighted else 1) * even, (most_y + 2 * ry) * long), f32)
    ring = np.empty((n_slots * c, 0 if is_weighted else most), f32)
    total = np.empty((even if is_weighted else c, most_x if is_weighted else most), f32)
    packed = np.zeros((even, long), f32)
    buffers = np.zeros((fours, long), f32), np.zeros((4, long), f32), np.zeros(long, f32)
    for n in range(len(boxes)):
        box = boxes[n]
        z0, z1, y0, y1, x0, x1 = box[0], box[1], box[2], box[3], box[4], box[5]
        slabs[:], ring[:], total[:] = 0, 0, 0
        first, last = max(0, x0 - rx), min(width, x1 + rx)
        for z in range(z0 - rz, z1 + rz):
            slot, is_inside = (z + rz) % n_slots, 0 <= z < depth
            slab = slabs[slot * even : (slot + 1) * even] if is_weighted else slabs
            if is_masked or not is_inside:
                slab[:] = 0
            for y in range(max(0, y0 - ry), min(height, y1 + ry) if is_inside else 0):
                row, place = (z * height + y) * width, (y - y0 + ry) * long + margin
                i, end = nodes(n_before, start, row + first, row + last)
                target, place = (packed, 0) if is_masked else (slab, place + first - x0)
                likelihood(flow, i, end - i, buffers, target, place)
                if is_masked:
                    place = (y - y0 + ry) * long + margin - row - x0
                    for j in range(c):
                        target_row, nodes_row = at(slab, j, place), at(packed, j, 0)
                        for k in range(end - i):
                            target_row[pixels[i - start + k]] = nodes_row[k]
            if not is_weighted:
                add_slice(
                    slab, long, margin - rx, lines, ring, slot * c, total, y1 - y0, x1 - x0, ry,
                    2 * rx + 1,
                )  # fmt: skip
            done = z - rz
            for y in range(y0, y1 if done >= z0 else y0):
                row = (done * height + y) * width
                i, end = nodes(n_before, start, row + x0, row + x1)
                if is_weighted:
                    weigh(
                        weights, offsets, slabs, even, long, margin, total, buffers[1], sides,
                        radii, box, done, y,
                    )  # fmt: skip
                means, place = total, 0 if is_weighted else (y - y0) * (x1 - x0)
                if is_masked:
                    for j in range(c):
                        nodes_row, sums_row = at(packed, j, 0), at(total, j, place - row - x0)
                        for k in range(end - i):
                            nodes_row[k] = sums_row[pixels[i - start + k]]
                    means, place = packed, 0
                scale, largest = inverse[i - start : end - start], out[2][i:end]
                correct(
                    flow, c1, c2, c3, out, seeds, scale, i, end - i, means, place, packed, buffers
                )  # fmt: skip
                compare(cost, largest, i, end - i, packed[:c], buffers, sums[n])


@entry(_Field, _Whole, _Boxes, _Sums)
def read(v, labels, boxes, sums):
    """Update the labels of nodes; add how many changed, and how many there are of each.

    A label stays where it is one of the largest, whose coordinates are 0.
    """
    for n in range(len(boxes)):
        for i in range(boxes[n, 0], boxes[n, 1]):
            label = labels[i]
            if v[label, i] < 0:
                label = 0
                while v[label, i] < 0:
                    label += 1
                labels[i] = label
                sums[n, 0] += 1
            sums[n, 1 + label] += 1
