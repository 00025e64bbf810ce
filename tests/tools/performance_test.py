"""tools/performance.py: the page has every row, and names those that fall short."""

import importlib.util
import pathlib
import sys

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
