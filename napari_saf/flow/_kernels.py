"""The steps of the flows as loops over the pixels of a grid, compiled by numba.

This file is run, never imported: ``python _kernels.py PART TARGET`` writes the machine code of the
functions at its end, for the processor it runs on, where `_fused` loads it from.

Fields have their columns first, (n_columns, n_nodes), so that every loop goes over neighbouring
nodes and is vectorised whatever the number of columns. A tile of a grid, with a rim as wide as the
window, is worked through slice by slice along the first axis, in memory that stays in the caches:
what is averaged never becomes a field. An image in 2-D has one row a slice.

Pointers are those of arrays in C order; `o` is where something begins in one, `t` the distance
between columns in it, m the number of nodes in a row of a tile.
"""

import json
import os
import sys
from collections import namedtuple
from struct import unpack_from

import llvmlite.binding as llvm
import numpy as np
from _kernel_rows import exp, f32, inner, kernel, log, mix, normalize, softmax
from numba import njit, types

FLOOR = f32(np.log(1e-10))
LEAST_EXPONENT = f32(-60)

Job = namedtuple(
    "Job",
    "v s before ahead_s ahead a b c1 c2 c3 cost factors seeds weights offsets first places inverse "
    "n c r depth height width rz ry rx n_positions is_masked has_seeds is_self scratch sums",
)
"""A step of a whole grid: fields, factors, and the geometry; see `step`."""

Tile = namedtuple("Tile", "z0 z1 y0 y1 x0 x1 ph pw t ring raw total lines one two three row")
"""A box of pixels, its sides with the rim, and where its buffers begin in the scratch memory."""


@kernel
def predict(job, u, o, t, i, m):
    """P = V + a S + b S', the state of the nodes i, i + 1, ... that is evaluated."""
    for j in range(job.c):
        k = j * job.n + i
        for x in range(m):
            u[o + j * t + x] = job.v[k + x] + job.a * job.s[k + x] + job.b * job.before[k + x]


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
def likelihood(job, tile, i, m):
    """P + g(W) / rho of a row, in buffer one: g = -D, or the gradient in its factors."""
    u, t, c = job.scratch, tile.t, job.c
    predict(job, u, tile.one, t, i, m)
    if not job.is_self:
        mix_costs(job, u, tile.one, t, i, m)
        return
    for j in range(c):
        for x in range(m):
            u[tile.two + j * t + x] = u[tile.one + j * t + x]
    softmax(u, tile.two, t, c, m, tile.row)
    mix(u, tile.one, t, c, m, u, tile.two, t, c, job.factors, job.r * c)
    mix(u, tile.one, t, c, m, job.cost, i, job.n, job.r, job.factors, 0)


@kernel
def mix_costs(job, u, o, t, i, m):
    """P - D / rho."""
    factor = job.factors[0]
    for j in range(job.c):
        k = j * job.n + i
        for x in range(m):
            u[o + j * t + x] += factor * job.cost[k + x]


@kernel
def slab(job, tile, z, raw):
    """The likelihood of a slice of the tile with its rim, zero where no node is."""
    u, t = job.scratch, tile.t
    for k in range(raw, raw + job.c * tile.ph * tile.pw):
        u[k] = f32(0)
    if z < 0 or z >= job.depth:
        return
    x0, x1 = max(0, tile.x0 - job.rx), min(job.width, tile.x1 + job.rx)
    for y in range(max(0, tile.y0 - job.ry), min(job.height, tile.y1 + job.ry)):
        i, end = nodes(job, z * job.height + y, x0, x1)
        m = end - i
        if m == 0:
            continue
        likelihood(job, tile, i, m)
        for j in range(job.c):
            to = raw + (j * tile.ph + y - tile.y0 + job.ry) * tile.pw - tile.x0 + job.rx
            if job.is_masked:
                for x in range(m):
                    u[to + job.places[i + x]] = u[tile.one + j * t + x]
            else:
                for x in range(m):
                    u[to + x0 + x] = u[tile.one + j * t + x]


@kernel
def add_along_rows(u, o, to, m, side):
    """Sums of `side` neighbours in a row."""
    for x in range(m):
        u[to + x] = u[o + x]
    k = 1
    while k + 4 <= side:
        for x in range(m):
            p = o + k + x
            u[to + x] += (u[p] + u[p + 1]) + (u[p + 2] + u[p + 3])
        k += 4
    if k < side:
        for x in range(m):
            u[to + x] += u[o + k + x] + u[o + k + 1 + x]


@kernel
def add_slab(job, tile, slot):
    """Box sums: along x anew, along y and z by what enters and what leaves the window."""
    u, m, n_rows = job.scratch, tile.x1 - tile.x0, tile.y1 - tile.y0
    for j in range(job.c):
        for y in range(tile.ph):
            o = tile.raw + (j * tile.ph + y) * tile.pw
            add_along_rows(u, o, tile.lines + y * m, m, 2 * job.rx + 1)
        for x in range(m):
            u[tile.row + x] = f32(0)
        for y in range(2 * job.ry):
            for x in range(m):
                u[tile.row + x] += u[tile.lines + y * m + x]
        for y in range(n_rows):
            new = tile.lines + (y + 2 * job.ry) * m
            old = tile.lines + y * m
            to = tile.total + (j * n_rows + y) * m
            ring = tile.ring + ((slot * job.c + j) * n_rows + y) * m
            for x in range(m):
                u[tile.row + x] += u[new + x]
            for x in range(m):
                u[to + x] += u[tile.row + x] - u[ring + x]
            for x in range(m):
                u[ring + x] = u[tile.row + x]
            for x in range(m):
                u[tile.row + x] -= u[old + x]


@kernel
def reach(k, r, side):
    """How many of the places k - r to k + r there are."""
    return min(k + r, side - 1) - max(k - r, 0) + 1


@kernel
def average(job, tile, z, y, i, m):
    """The mean over the window of each node of a row, in buffer one."""
    u, t, width, n_rows = job.scratch, tile.t, tile.x1 - tile.x0, tile.y1 - tile.y0
    if job.n_positions:
        weigh(job, tile, z, y, width)
    elif not job.is_masked:
        count = reach(z, job.rz, job.depth) * reach(y, job.ry, job.height)
        for x in range(m):
            u[tile.row + x] = f32(1) / f32(count * reach(tile.x0 + x, job.rx, job.width))
    for j in range(job.c):
        o = tile.total + (j * n_rows + y - tile.y0) * width
        if job.n_positions:
            o = tile.total + j * width
        to = tile.one + j * t
        if job.is_masked:
            for x in range(m):
                u[to + x] = u[o + job.places[i + x] - tile.x0] * job.inverse[i + x]
        elif job.n_positions:
            for x in range(m):
                u[to + x] = u[o + x]
        else:
            for x in range(m):
                u[to + x] = u[o + x] * u[tile.row + x]


@kernel
def weigh(job, tile, z, y, width):
    """sum_o w_o(p) L(p + o) over the positions o of the window, for each pixel p of a row."""
    u, plane = job.scratch, tile.ph * tile.pw
    for k in range(tile.total, tile.total + job.c * width):
        u[k] = f32(0)
    n_pixels = job.depth * job.height * job.width
    for k in range(job.n_positions):
        dz, dy, dx = job.offsets[3 * k], job.offsets[3 * k + 1], job.offsets[3 * k + 2]
        slot = (z + dz + job.rz) % (2 * job.rz + 1)
        w = k * n_pixels + (z * job.height + y) * job.width + tile.x0
        o = tile.ring + slot * job.c * plane + (y + dy - tile.y0 + job.ry) * tile.pw + dx + job.rx
        for j in range(job.c):
            for x in range(width):
                u[tile.total + j * width + x] += job.weights[w + x] * u[o + j * plane + x]


@kernel
def correct(job, tile, i, m):
    """S = softmax of the means; V <- V + c1 S0 + c2 S + c3 S', normalised; the error estimate.

    The error is |softmax(V) - softmax(P)|, summed up.
    """
    u, t, c, n, row = job.scratch, tile.t, job.c, job.n, tile.row
    normalize(u, tile.one, t, c, m, row, LEAST_EXPONENT)
    softmax(u, tile.one, t, c, m, row)
    for j in range(c):
        k, o = j * n + i, tile.one + j * t
        for x in range(m):
            job.ahead_s[k + x] = u[o + x]
        for x in range(m):
            u[o + x] = job.v[k + x] + job.c1 * job.s[k + x] + job.c2 * u[o + x]
        for x in range(m):
            u[o + x] += job.c3 * job.before[k + x]
    normalize(u, tile.one, t, c, m, row, FLOOR)
    if job.has_seeds:
        for x in range(m):
            seed = job.seeds[i + x]
            if seed >= 0:
                for j in range(c):
                    u[tile.one + j * t + x] = f32(0) if j == seed else FLOOR
    for j in range(c):
        for x in range(m):
            job.ahead[j * n + i + x] = u[tile.one + j * t + x]
    softmax(u, tile.one, t, c, m, row)
    predict(job, u, tile.two, t, i, m)
    softmax(u, tile.two, t, c, m, row)
    compare(job, tile, i, m)


@kernel
def compare(job, tile, i, m):
    """Sums of |U - W|, and of W D, W and W^2, over a row, U in buffer one, W in buffer two."""
    u, t, c, sums = job.scratch, tile.t, job.c, job.sums
    for j in range(c):
        error = f32(0)
        for x in range(m):
            error += abs(u[tile.one + j * t + x] - u[tile.two + j * t + x])
        sums[0] += error
        if not job.is_self:
            cost, mass, square = f32(0), f32(0), f32(0)
            for x in range(m):
                w = u[tile.two + j * t + x]
                cost += w * job.cost[j * job.n + i + x]
                mass += w
                square += w * w
            sums[1] += cost
            sums[2 + j] += mass
            sums[2 + c + j] += square


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
                average(job, tile, done, y, i, end - i)
                correct(job, tile, i, end - i)


@kernel
def begin(job, box):
    """The tile of a box, its buffers one after another in the scratch memory; those of sums 0."""
    z0, z1, y0, y1, x0, x1 = box[0], box[1], box[2], box[3], box[4], box[5]
    ph, pw = y1 - y0 + 2 * job.ry, x1 - x0 + 2 * job.rx
    t = (pw + 15) // 16 * 16
    slice_size = job.c * (y1 - y0) * (x1 - x0)
    raw_size = job.c * ph * pw
    ring_size = (2 * job.rz + 1) * (raw_size if job.n_positions else slice_size)
    raw = ring_size
    total = raw + raw_size
    lines = total + max(slice_size, job.c * (x1 - x0))
    one = (lines + ph * (x1 - x0) + 15) // 16 * 16
    two = one + job.c * t
    three = two + job.c * t
    for k in range(lines):
        job.scratch[k] = f32(0)
    return Tile(z0, z1, y0, y1, x0, x1, ph, pw, t, 0, raw, total, lines, one, two, three, three)


Floats, Doubles = types.CPointer(types.float32), types.CPointer(types.float64)
Whole, Short = types.CPointer(types.int64), types.CPointer(types.int32)


def step(
    v, s, before, ahead_s, ahead, numbers, cost, factors, seeds, weights, offsets, first, places,
    inverse, grid, box, scratch, sums,
):  # fmt: skip
    """Evaluate the right-hand side and correct the state in a tile of a grid."""
    job = Job(
        v, s, before, ahead_s, ahead, f32(numbers[0]), f32(numbers[1]), f32(numbers[2]),
        f32(numbers[3]), f32(numbers[4]), cost, factors, seeds, weights, offsets, first, places,
        inverse, grid[0], grid[1], grid[2], grid[3], grid[4], grid[5], grid[6], grid[7], grid[8],
        grid[9], grid[10], grid[11], grid[12], scratch, sums,
    )  # fmt: skip
    step_tile(job, begin(job, box))


def overlap(v, s, before, numbers, cost, grid, box, scratch, sums):
    """W'W and Phi'W, W = softmax(V + a S + b S'), of the nodes of a box in the order of nodes."""
    n, c, r, m, row = grid[0], grid[1], grid[2], 256, 256 * grid[1]
    a, b = f32(numbers[0]), f32(numbers[1])
    for i in range(box[0], box[1], m):
        m = min(256, box[1] - i)
        for j in range(c):
            k = j * n + i
            for x in range(m):
                scratch[j * 256 + x] = v[k + x] + a * s[k + x] + b * before[k + x]
        softmax(scratch, 0, 256, c, m, row)
        inner(scratch, 0, 256, c, m, scratch, 0, 256, c, sums, 2, True)
        inner(scratch, 0, 256, c, m, cost, i, n, r, sums, 2 + c * c, False)


def read(v, labels, highest, grid, box, scratch, sums):
    """Labels of nodes, how many changed, how many there are of each; entropy; the largest W.

    A label stays where it is one of the largest. The entropy is log Z - sum_j W_j V_j, with
    Z = sum_j exp V_j and the largest of W 1 / Z.
    """
    n, c = grid[0], grid[1]
    best, total, product = 0, 256, 512
    for i in range(box[0], box[1], 256):
        m = min(256, box[1] - i)
        for x in range(m):
            scratch[best + x] = f32(0)
            scratch[total + x] = f32(0)
            scratch[product + x] = f32(0)
        for j in range(c):
            k = j * n + i
            for x in range(m):
                e = exp(v[k + x])
                scratch[total + x] += e
                scratch[product + x] += e * v[k + x]
                # rows have a maximum of 0; the first column that has it
                scratch[best + x] += (
                    f32(j + 1) if v[k + x] == 0 and scratch[best + x] == 0 else f32(0)
                )
        entropy = f32(0)
        for x in range(m):
            z = scratch[total + x]
            highest[i + x] = f32(1) / z
            entropy += log(z) - scratch[product + x] / z
        sums[0] += entropy
        changed = 0
        for x in range(m):
            label = labels[i + x]
            if v[label * n + i + x] < 0:
                label = np.int64(scratch[best + x]) - 1
                labels[i + x] = label
                changed += 1
            sums[2 + label] += 1
        sums[1] += changed


SIGNATURES = {
    step: [Floats] * 5 + [Doubles, Floats, Floats, Whole, Floats, Whole, Whole, Short, Floats]
    + [Whole, Whole, Floats, Doubles],
    overlap: [Floats] * 3 + [Doubles, Floats, Whole, Whole, Floats, Doubles],
    read: [Floats, Whole, Floats, Whole, Whole, Floats, Doubles],
}  # fmt: skip


KNOWN = {"memset", "memcpy"}
"""The functions outside that machine code may call: a name that is unknown where it is loaded ends
the program."""


def needed(code):
    """The names that an object file, 64 bits ELF, leaves undefined, by its table of symbols."""
    (start,), (size, count) = unpack_from("<Q", code, 40), unpack_from("<HH", code, 58)
    sections = [unpack_from("<IIQQQQII", code, start + k * size) for k in range(count)]
    found = set()
    for _, kind, _, _, offset, length, link, _ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for place in range(offset, offset + length, 24):
            name, _, _, section = unpack_from("<IBBH", code, place)
            if name and section == 0:  # SHN_UNDEF
                found.add(code[names + name : code.index(b"\0", names + name)].decode())
    return found


def main(part, target):
    """Write the names of the functions, a line of JSON, and the machine code of each."""
    # Rows that differ in a loop are compared there: over the loops around it they overlap.
    llvm.set_option("", "-hoist-runtime-checks=false")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if llvm.get_process_triple().startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )
    names, codes = {}, []
    for function, arguments in SIGNATURES.items():
        # The functions alone: wrappers need numba where they are called.
        compiled = njit(
            types.void(*arguments), fastmath=True, nogil=True, error_model="numpy",
            no_cpython_wrapper=True, no_cfunc_wrapper=True,
        )(function)  # fmt: skip
        (found,) = compiled.overloads.values()
        code = machine.emit_object(llvm.parse_assembly(found.library.get_llvm_str()))
        missing = needed(code) - KNOWN
        if missing:
            raise SystemExit(f"{function.__name__} calls {missing}, which is not there at run time")
        names[function.__name__] = found.fndesc.mangled_name, len(code)
        codes.append(code)
    with open(part, "wb") as file:
        file.write(json.dumps(names).encode() + b"\n" + b"".join(codes))
    os.replace(part, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
