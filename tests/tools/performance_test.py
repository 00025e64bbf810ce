"""tools/performance.py: the page has every row, and names those that fall short."""

import importlib.util
import json
import pathlib
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
spec = importlib.util.spec_from_file_location("performance", root / "tools" / "performance.py")
performance = importlib.util.module_from_spec(spec)
spec.loader.exec_module(performance)


def row(name, ratio, **more):
    return {"row": name, "ours_ms": 2.0, "plan": "cpu.fused", "plan0": "cpu.fused", "plan0_ms": 2.0, "best": "cpu.fused",
            "best_ms": 2.0, "peer": "onednn matmul[brg]", "peer_ms": 2.0 * ratio, "ratio": ratio, "target": 1.0,
            "ok": ratio >= 1, "plan0_ok": True, **more}


def page(*rows):
    machine = {"cpu": "a CPU", "target": "cpu:avx2,threads=2", "threads": 2, "last_level_cache_bytes": 32 << 20,
               "tilewright": "1", "onednn": "2.6.3", "date": "2000-01-01"}
    return performance.render({"machine": machine, "rows": rows})


text = page(row("good", 1.5, also={"own FLOAT": 0.25}), row("small", 2.0, ours_ms=5e-4))
assert "| good | 2.00 ms | onednn | 3.00 ms | 1.50 | 1.00 | yes |" in text, text
assert "own FLOAT 250 us" in text and "| small | 500 ns |" in text, text
assert "Every row reaches its target." in text, text

text = page(row("slow", 0.5), row("wrong", 2.0, error="differs", ok=False), row("info", 0.2, target=0),
            row("choice", 1.0, plan0="other", plan0_ms=4.0, plan0_ok=False), row("memory", 2.0, extra_bytes=5000000))
for line in ["* `slow`: 0.50 of 1.00", "* `wrong`: differs", "* `choice`: plan 0 is other, 2.00 times as slow as cpu.fused"]:
    assert line in text, text
assert "**no**" in text and "5.0 MB beyond the tensors" in text and "* `info`" not in text, text


def gpu_row(name, best, **more):
    return {"row": name, "engine": "cudnn", "plan": "cudnn.eng2[k=1]", "plan0": "cudnn.eng1", "plan0_ms": 2 * best,
            "best_ms": best, "rate": 1e9, "rate_unit": "B/s", "ratio_to_cudnn_best": 1.0, "copy_ms": best / 2,
            "plans": 3, "failed": 0, "wrong": 0, "less_exact": 0, "build_ms": 5.0, "timed": "graph of 40",
            "worst_error": 0.0, "error": "", "target": 0, "ok": True, **more}


def gpu_page(*rows, notes=""):
    return performance.render_gpu({
        "gpu": "a GPU", "target": "cuda:sm_90", "driver": "13.0", "cudnn": "9.19.0", "tilewright": "1",
        "clocks": {"sm_mhz": 1980, "memory_mhz": 3201}, "copy_bandwidth": 4.28e12, "matmul_rate": 7.9e14,
        "date": "2000-01-01", "command": "./dev bench gpu --json x", "peers": ["front end", "PyTorch 2"], "rows": rows}, notes)


front_end = {"front end": {"ms": 0.4, "ratio": 0.8, "plan0_ms": 0.5, "plans": 4}, "PyTorch 2": {"ms": 1.0, "ratio": 2.0}}
text = gpu_page(
    gpu_row("fine", 0.5), gpu_row("flops", 0.002, rate=7e14, rate_unit="FLOP/s"),
    gpu_row("short", 0.5, target=0.98, ok=False, peers=front_end),
    gpu_row("wrong", 0.5, error="cudnn.eng1: differs", ok=False),
    gpu_row("refused", 0, plan="", plan0="", note="refused: op: none such", copy_ms=0, rate=0), notes="By hand.")
for line in ["`./dev bench gpu --json x`", "4.28 TB/s", "790 TFLOP/s", "| front end | its ratio | PyTorch 2 | its ratio |",
             "| fine | cudnn | 1.000 ms | 500.00 us | 0.00 TB/s | 50 % | 1.00 | 3 |", "| 2.00 us | 700 TFLOP/s |",
             "| 400.00 us | 0.80 | 1.000 ms | 2.00 | **no** | `cudnn.eng2[k=1]` |",
             "* `short` (cudnn): 0.80 of 0.98 of the speed of front end, 3 plans of 4, plan 0 takes 1.000 ms where theirs takes 500.00 us",
             "* `wrong` (cudnn): cudnn.eng1: differs", "* `refused` (cudnn): refused: op: none such", "By hand."]:
    assert line in text, f"no {line!r} in\n{text}"
assert "* `fine`" not in text and "Every row is right." in gpu_page(gpu_row("fine", 0.5))

# The page: each section that has figures, with the notes beside them.
with tempfile.TemporaryDirectory() as work:
    folder = pathlib.Path(work) / "figures"
    folder.mkdir()
    sys.argv[1:] = [str(folder)]
    source = root / "docs" / "performance"
    (folder / "cpu.json").write_text((source / "cpu.json").read_text())
    performance.main()
    alone = (pathlib.Path(work) / "figures.md").read_text()
    assert "## On a CPU" in alone and "## On a GPU" not in alone
    machine = {"gpu": "g", "target": "t", "driver": "d", "cudnn": "", "tilewright": "1", "date": "", "command": "c",
               "clocks": {"sm_mhz": 1, "memory_mhz": 1}, "copy_bandwidth": 1, "matmul_rate": 1, "peers": []}
    (folder / "h200.json").write_text(json.dumps({**machine, "rows": [gpu_row("fine", 0.5)]}))
    (folder / "gpu-notes.md").write_text("Notes.")
    performance.main()
    both = (pathlib.Path(work) / "figures.md").read_text()
    assert both.startswith(alone.rstrip()) and "## On a GPU" in both and both.endswith("Notes."), both
