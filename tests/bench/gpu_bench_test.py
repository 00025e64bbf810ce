"""The command line of the GPU benchmark, and the names of its rows as bench/torch_peer.py reads them.

gpu_bench_test.py BENCH SOURCE_FOLDER"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

bench, root = sys.argv[1], pathlib.Path(sys.argv[2])
spec = importlib.util.spec_from_file_location("torch_peer", root / "bench" / "torch_peer.py")
torch_peer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(torch_peer)


def call(*arguments, code=0, err=""):
    done = subprocess.run([bench, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == code and err in done.stderr, (arguments, done)
    return done.stdout


text = call("--help")
for option in ["--filter", "--json", "--quick", "--check-only", "--publish", "--peer", "--merge", "--device", "--list"]:
    assert option in text, f"{option} is not in the help"
call("--frobnicate", code=2, err='"--frobnicate" is not understood')
call("--json", code=2, err="lacks its value")
call("--publish", code=2, err="./dev bench gpu --publish knows it")
call("--filter", "nothing-like-this", code=2, err="no row matches")
call("--peer", "/absent.json", code=2, err='cannot read "/absent.json"')
with tempfile.NamedTemporaryFile("w", suffix=".json") as peer:
    json.dump({"name": "x", "rows": [{"row": "a"}]}, peer)
    peer.flush()
    call("--peer", peer.name, code=2, err='"ms", a number')
call("--device", "cuda:99", code=2, err="error: ")
call("--device", "cpu:avx2", code=2, err="is no GPU of this machine")

names = call("--list").split()
assert len(names) > 50 and len(set(names)) == len(names), names
assert call("--list", "--filter", "^softmax").split() == ["softmax/32768x4096", "softmax_written/32768x4096"]
for name in names:
    parsed = torch_peer.parse(name)
    assert parsed or name.startswith("host/build"), f"bench/torch_peer.py does not know the row {name}"
assert torch_peer.parse("conv/32x256x56-256_3x3_32groups") == (
    "conv", dict(n=32, c=256, hw=56, k=256, r=[3, 3], stride=1, pad=1, groups=32))
assert torch_peer.parse("conv+bias+relu/32x3x224-64_7x7s2")[1]["stride"] == 2
assert torch_peer.parse("matmul/16x4096x8")[1] == dict(b=1, m=16, k=4096, n=8)
assert torch_peer.parse("attention_decode/b32hq32hkv8s8192d128")[1] == dict(
    b=32, hq=32, hkv=8, sq=1, skv=8192, d=128, causal=False)
assert torch_peer.parse("instancenorm/32x256x56")[1] == dict(n=32, c=256, hw=56)
assert torch_peer.parse("unheard/of") is None
