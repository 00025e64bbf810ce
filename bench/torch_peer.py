#!/usr/bin/env python3
"""The rows of `./dev bench gpu` in PyTorch, as figures for its table.

  build/bin/tilewright_gpu_bench --list | python3 bench/torch_peer.py --json torch.json [--compile]

Row names come on standard input, one a line; their sizes are in the names. Times are medians of 20, by CUDA events,
after a warm-up, on sets of inputs that together are at least three times the L2; brief runs are batched in a CUDA graph.
With --compile, what torch.compile makes of the same function is timed too, and the faster of the two is told. A row that
PyTorch cannot run is left out, with the reason on standard error.
"""

import argparse
import json
import re
import statistics
import sys
import time

SAMPLES = 20


def numbers(text):
    return [int(n) for n in text.split("x")]


def parse(name):
    """The family of a row and its sizes, from its name; None: no row of ours."""
    family, _, size = name.partition("/")
    if family in ("conv+bias+relu", "dgrad", "wgrad", "conv", "conv3d", "conv_float"):
        m = re.fullmatch(r"(\d+)x(\d+)x(\d+)-(\d+)_(\d+(?:x\d+)+?)(?:s(\d+))?(?:_(depthwise|\d+groups))?", size)
        if not m:
            return None
        n, c, hw, k = map(int, m.groups()[:4])
        r = numbers(m[5])
        groups = 1 if not m[7] else c if m[7] == "depthwise" else int(m[7][:-6])
        return family, dict(n=n, c=c, hw=hw, k=k, r=r, stride=int(m[6] or 1), pad=r[0] // 2, groups=groups)
    if family.startswith("matmul"):
        s = numbers(size)
        b, (m, k, n) = (s[0] if len(s) == 4 else 1), s[-3:]
        return family, dict(b=b, m=m, k=k, n=n)
    if family.startswith("attention"):
        m = re.fullmatch(r"b(\d+)(?:h(\d+)|hq(\d+)hkv(\d+))s(\d+)d(\d+)(?:_(causal|full))?", size)
        if not m:
            return None
        hq, hkv = int(m[2] or m[3]), int(m[2] or m[4])
        s = int(m[5])
        return family, dict(b=int(m[1]), hq=hq, hkv=hkv, sq=1 if family == "attention_decode" else s, skv=s,
                            d=int(m[6]), causal=m[7] == "causal")
    if family.split("_")[0] in ("layernorm", "rmsnorm"):
        m = re.fullmatch(r"(\d+)x(\d+)(_scale_float)?", size)
        return (family, dict(rows=int(m[1]), width=int(m[2]), wide=bool(m[3]))) if m else None
    if family in ("softmax", "softmax_written", "add+gelu", "transpose"):
        rows, columns = numbers(size)
        return family, dict(rows=rows, columns=columns)
    if family in ("batchnorm+relu", "instancenorm", "genstats", "nchw_to_nhwc"):
        n, c, hw = numbers(size)
        return family, dict(n=n, c=c, hw=hw)
    if family == "amax":
        return family, dict(count=int(size[:-1]) << 20)
    if name == "host/execute/64x64x64":
        return "host", {}
    return None


def make(torch, family, s):
    """(make_inputs(), function(*inputs), fused, captured): what runs, whether compiling and capturing it are of use."""
    import torch.nn.functional as F

    bf16, f32 = torch.bfloat16, torch.float32
    random = lambda *shape, dtype=bf16: torch.randn(*shape, device="cuda", dtype=dtype)
    if family in ("conv+bias+relu", "dgrad", "wgrad", "conv", "conv3d", "conv_float"):
        dims = len(s["r"])
        layout = torch.channels_last if dims == 2 else torch.channels_last_3d
        dtype = f32 if family == "conv_float" else bf16
        x = lambda: random(s["n"], s["c"], *[s["hw"]] * dims, dtype=dtype).to(memory_format=layout)
        w = lambda: random(s["k"], s["c"] // s["groups"], *s["r"], dtype=dtype).to(memory_format=layout)
        conv = F.conv2d if dims == 2 else F.conv3d
        how = dict(stride=s["stride"], padding=s["pad"], groups=s["groups"])
        if family == "conv+bias+relu":
            return lambda: (x(), w(), random(s["k"])), lambda x, w, b: F.relu(conv(x, w, b, **how)), True, True
        if family in ("dgrad", "wgrad"):
            mask = [family == "dgrad", family == "wgrad", False]
            back = lambda dy, x, w: torch.ops.aten.convolution_backward(
                dy, x, w, None, [s["stride"]] * 2, [s["pad"]] * 2, [1, 1], False, [0, 0], s["groups"], mask)
            out = (s["hw"] + 2 * s["pad"] - s["r"][0]) // s["stride"] + 1
            dy = lambda: random(s["n"], s["k"], out, out).to(memory_format=layout)
            return lambda: (dy(), x(), w()), back, False, True
        return lambda: (x(), w()), lambda x, w: conv(x, w, None, **how), False, True
    if family.startswith("matmul"):
        b, m, k, n = s["b"], s["m"], s["k"], s["n"]
        shape = lambda *d: d if b == 1 else (b, *d)
        if family == "matmul_fp8":
            one = torch.ones((), device="cuda")
            inputs = lambda: (random(m, k).to(torch.float8_e4m3fn), random(n, k).to(torch.float8_e4m3fn))
            return inputs, lambda x, y: torch._scaled_mm(x, y.t(), one, one, out_dtype=bf16), False, True
        if family == "matmul_int8":
            ints = lambda *d: torch.randint(-3, 4, d, device="cuda", dtype=torch.int8)
            return lambda: (ints(m, k), ints(n, k)), lambda x, y: torch._int_mm(x, y.t()), False, True
        dtype = f32 if family in ("matmul_tf32", "matmul_float") else bf16
        operands = lambda: (random(*shape(m, k), dtype=dtype), random(*shape(k, n), dtype=dtype))
        if family in ("matmul", "matmul_tf32", "matmul_float"):
            return operands, torch.matmul, False, True
        act = F.relu if "relu" in family else F.gelu

        def fused(x, y, bias):
            z = act(torch.matmul(x, y) * 0.125 + bias)
            return (z, z.abs().amax()) if "amax" in family else z

        return lambda: (*operands(), random(n)), fused, True, True
    if family.startswith("attention"):
        q = lambda: random(s["b"], s["hq"], s["sq"], s["d"])
        kv = lambda: random(s["b"], s["hkv"], s["skv"], s["d"])
        attend = lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=s["causal"], enable_gqa=s["hq"] != s["hkv"])
        if family != "attention_backward":
            return lambda: (q(), kv(), kv()), attend, False, True

        def inputs():
            qkv = [t().requires_grad_() for t in (q, kv, kv)]
            return attend(*qkv), qkv, q()

        return inputs, lambda o, qkv, d_o: torch.autograd.grad(o, qkv, d_o, retain_graph=True), False, False
    if family.split("_")[0] in ("layernorm", "rmsnorm"):
        rows, width = s["rows"], s["width"]
        parameter = lambda: random(width, dtype=f32 if s["wide"] else bf16)
        layer = family.startswith("layernorm")
        norm = (lambda x, *p: F.layer_norm(x, (width,), *p)) if layer else (lambda x, *p: F.rms_norm(x, (width,), *p))
        parameters = lambda: [parameter(), parameter()] if layer else [parameter()]
        if family.endswith("forward"):
            return lambda: (random(rows, width), *parameters()), norm, True, True

        def inputs():
            leaves = [t.requires_grad_() for t in (random(rows, width), *parameters())]
            return norm(*leaves), leaves, random(rows, width)

        return inputs, lambda y, leaves, dy: torch.autograd.grad(y, leaves, dy, retain_graph=True), False, False
    if family == "batchnorm+relu":
        x = lambda: random(s["n"], s["c"], s["hw"], s["hw"]).to(memory_format=torch.channels_last)
        p = lambda: random(s["c"], dtype=f32)
        return lambda: (x(), p(), p()), lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)), True, True
    if family in ("instancenorm", "genstats"):
        x = lambda: random(s["n"], s["c"], s["hw"], s["hw"]).to(memory_format=torch.channels_last)
        p = lambda: random(s["c"], dtype=f32)
        if family == "instancenorm":
            return lambda: (x(), p(), p()), lambda x, w, b: F.instance_norm(x, weight=w, bias=b), True, True
        sums = lambda x: (x.sum((0, 2, 3), dtype=f32), x.float().square().sum((0, 2, 3)))
        return lambda: (x(),), sums, True, True
    if family == "nchw_to_nhwc":
        return (lambda: (random(s["n"], s["c"], s["hw"], s["hw"]),),
                lambda x: x.contiguous(memory_format=torch.channels_last), False, True)
    if family == "amax":
        return lambda: (random(s["count"]),), lambda x: torch.linalg.vector_norm(x, float("inf")), True, True
    matrix = lambda: random(s["rows"], s["columns"])
    if family == "softmax":
        return lambda: (matrix(),), lambda x: F.softmax(x, -1), True, True
    if family == "softmax_written":
        def written(x):
            e = (x.float() - x.amax(-1, keepdim=True)).exp()
            return (e / e.sum(-1, keepdim=True)).to(x.dtype)

        return lambda: (matrix(),), written, True, True
    if family == "add+gelu":
        return lambda: (matrix(), matrix()), lambda x, z: F.gelu(x + z), True, True
    return lambda: (matrix(),), lambda x: x.t().contiguous(), True, True


def tensors_of(torch, values):
    for v in values:
        if isinstance(v, (list, tuple)):
            yield from tensors_of(torch, v)
        elif isinstance(v, torch.Tensor):
            yield v


def event_ms(torch, launch, runs, samples):
    events = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    launch()
    events[0].record()
    for e in events[1:]:
        launch()
        e.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / runs


def measure(torch, sets, function, captured):
    """Milliseconds of a run."""
    def run(count):
        for i in range(count):
            function(*sets[i % len(sets)])

    run(max(3, len(sets)))
    torch.cuda.synchronize()
    rough = event_ms(torch, lambda: run(len(sets)), len(sets), 3)
    if rough >= 0.5:
        turn = iter(range(1 << 30))
        return event_ms(torch, lambda: function(*sets[next(turn) % len(sets)]), 1, SAMPLES)
    batch = -(-int(1 / max(rough, 1e-3)) // len(sets)) * len(sets)
    if not captured:
        return event_ms(torch, lambda: run(batch), batch, SAMPLES)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(batch)
    return event_ms(torch, graph.replay, batch, SAMPLES)


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def host_ms(torch):
    """What a call of the smallest matmul costs the host."""
    x, y = (torch.randn(1, 64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(x)
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            torch.matmul(x, y, out=out)
        times.append((time.perf_counter() - start) / 200 * 1e3)
    return statistics.median(times)


def row_ms(torch, family, size, compiled):
    torch.backends.cuda.matmul.allow_tf32 = family != "matmul_float"
    torch.backends.cudnn.allow_tf32 = True
    if family == "host":
        return host_ms(torch), "eager"
    make_inputs, function, fused, captured = make(torch, family, size)
    sets = [make_inputs()]
    results = function(*sets[0])
    held = [*tensors_of(torch, sets[0]), *tensors_of(torch, [results])]
    bytes_per_set = sum(t.numel() * t.element_size() for t in held)
    l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 50 << 20)
    del results, held
    while len(sets) < 2 or (len(sets) * bytes_per_set < 3 * l2 and len(sets) < 512):
        sets.append(make_inputs())
    best, how = measure(torch, sets, function, captured), "eager"
    if compiled and fused:
        try:
            again = measure(torch, sets, torch.compile(function, dynamic=False), captured)
            if again < best:
                best, how = again, "compiled"
        except Exception as e:  # no compiler here, say
            print(f"  not compiled: {first_line(e)}", end="", file=sys.stderr)
    return best, how


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", required=True, help="file to write")
    options.add_argument("--compile", action="store_true", help="also time what torch.compile makes of fused rows")
    options = options.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("torch_peer.py: PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    rows = []
    for name in sys.stdin.read().split():
        parsed = parse(name)
        if not parsed:
            continue
        print(f"\r\033[KPyTorch: {name}" if sys.stderr.isatty() else f"PyTorch: {name}", end="", file=sys.stderr, flush=True)
        try:
            ms, how = row_ms(torch, *parsed, options.compile)
            rows.append({"row": name, "ms": ms, "how": how})
            print(f"  {ms:.4f} ms", file=sys.stderr)
        except Exception as e:  # one row that does not run leaves the others
            print(f"  left out: {first_line(e)}", file=sys.stderr)
        torch.cuda.empty_cache()
    title = f"PyTorch {torch.__version__.split('+')[0]}"
    with open(options.json, "w") as f:
        json.dump({"name": title, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
