"""The shell tool as a user calls it: each verb, its help, wrong input.  verbs_test.py TOOL SOURCE_FOLDER PART STUBS"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom

tool, source, part = sys.argv[1:4]
stubs = sys.argv[4]  # folders of stand-ins for NVIDIA's libraries
graphs = sorted(glob.glob(os.path.join(source, "examples/graphs/*.json")))
maxpool = os.path.join(source, "examples/graphs/maxpool.json")
matmul = os.path.join(source, "examples/graphs/matmul_gelu.json")
work = tempfile.mkdtemp(prefix="tilewright_verbs_")

SMALL = {
    "context": {"name": "small", "io_data_type": "FLOAT", "compute_data_type": "FLOAT"},
    "nodes": [
        {"tag": "pointwise", "name": "add", "mode": "ADD", "inputs": {"IN_0": "X", "IN_1": "Z"}, "outputs": {"OUT_0": "S"}},
        {"tag": "pointwise", "name": "relu", "mode": "RELU_FWD", "inputs": {"IN_0": "S"}, "outputs": {"OUT_0": "Y"}},
    ],
    "tensors": {"X": {"dim": [3, 5]}, "Z": {"dim": [3, 5]}, "S": {"is_virtual": True, "data_type": "FLOAT"}, "Y": {}},
}


def path(name, content=None):
    file = os.path.join(work, name)
    if content is not None:
        with open(file, "w") as f:
            f.write(content if isinstance(content, str) else json.dumps(content))
    return file


def call(*arguments, code=0, stdin=None, out=(), err=(), env={}):
    """Runs the tool; its standard output. Checks the exit code and texts that must appear."""
    # On the CPU, also where there is a GPU, unless a test says otherwise.
    done = subprocess.run([tool, *arguments], input=stdin, capture_output=True, text=True, cwd=work, timeout=500,
                          env={**os.environ, "TILEWRIGHT_DEVICE": "cpu", **env})
    where = f"tilewright {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}: {where}"
    for text in out:
        assert text in done.stdout, f"no {text!r} in the output of {where}"
    for text in err:
        assert text in done.stderr, f"no {text!r} in the errors of {where}"
    assert "\033" not in done.stdout + done.stderr, f"colours or a bar without a terminal: {where}"
    if code == 0 and not err and arguments[0] not in ("show", "import"):
        assert done.stderr == "", f"unexpected errors: {where}"
    return done.stdout


def test_help():
    text = call("--help", out=["doctor", "tour", "import", "Exit codes"])
    call("--version", out=["tilewright "])
    verbs = ["doctor", "tour", "run", "tune", "explain", "plans", "compile", "show", "check", "ops", "import"]
    for verb in verbs:
        assert verb in text
        call(verb, "--help", out=["Examples:", f"tilewright {verb}"])
    for verb in ["tour", "run", "tune", "explain", "plans", "show", "check"]:
        call(verb, "--help", out=["--device DEVICE", "h200"])
    call(code=2, err=["SUBCOMMAND", "tour"])
    call("frobnicate", code=2, err=["no verb", "tour"])
    call("run", code=2, err=["graph"])
    call("run", "--nonsense", maxpool, code=2)
    call("tour", "9", code=2)


def test_doctor():
    call("doctor", out=["Machine", "Engines", "reference", "Libraries", "NVRTC", "GPU", "TILEWRIGHT_NUM_THREADS", "CUDA_HOME"])
    report = json.loads(call("doctor", "--json"))
    assert {"cpu", "gpus", "engines", "libraries", "environment", "target"} <= set(report)
    assert any(e["name"] == "reference" and e["available"] and "cpu" in e["devices"] for e in report["engines"])
    assert [l["name"] for l in report["libraries"]] == ["oneDNN", "CUDA driver", "NVRTC", "cuDNN"]
    for l in report["libraries"]:
        assert not l["found"] or (l["version"] and l["path"]), l
        assert l["found"] or (l["problem"] and l["mend"] and l["tried"]), l
    for gpu in report["gpus"]:
        assert gpu["memory_bytes"] > 0 and "." in gpu["compute_capability"], gpu


def test_cudnn():
    """What doctor says of cuDNN: found or not, where it was looked for, and what mends it."""

    def cudnn(path):
        report = json.loads(call("doctor", "--json", env={"TILEWRIGHT_CUDNN_PATH": path}))
        return next(l for l in report["libraries"] if l["name"] == "cuDNN")

    right = os.path.join(stubs, "cudnn-9.2.1")
    there = cudnn(right)
    assert there["found"] and there["version"] == "9.2.1" and there["path"] == right + "/libcudnn.so.9", there
    place = f"{right} (TILEWRIGHT_CUDNN_PATH): libcudnn.so.9, version 9.2.1"
    assert there["tried"] == [place], there
    text = call("doctor", env={"TILEWRIGHT_CUDNN_PATH": right}, out=[f"{right}/libcudnn.so.9, version 9.2.1"])
    assert place not in text
    call("doctor", "--verbose", env={"TILEWRIGHT_CUDNN_PATH": right}, out=["cuDNN was looked for in:", place])

    folder = path("partial")
    shutil.copytree(right, folder)
    os.remove(os.path.join(folder, "libcudnn_heuristic.so.9"))
    lacks = "incomplete: it lacks libcudnn_heuristic.so.9"
    for given, problem in [("off", "cuDNN 9 is switched off by TILEWRIGHT_CUDNN_PATH=off"),
                           ("/absent", "TILEWRIGHT_CUDNN_PATH leads to no usable cuDNN 9: /absent: not there"),
                           (folder, f"TILEWRIGHT_CUDNN_PATH leads to no usable cuDNN 9: {folder}: {lacks}")]:
        missing = cudnn(given)
        assert not missing["found"] and missing["problem"] == problem, missing
        assert missing["mend"].startswith("unset TILEWRIGHT_CUDNN_PATH"), missing
        out = [problem, "to mend it: unset TILEWRIGHT_CUDNN_PATH"]
        call("doctor", env={"TILEWRIGHT_CUDNN_PATH": given}, out=out)
    call("doctor", env={"TILEWRIGHT_CUDNN_PATH": folder}, out=[f"    {folder} (TILEWRIGHT_CUDNN_PATH): {lacks}"])
    reason = "cuDNN 9 is switched off by TILEWRIGHT_CUDNN_PATH=off; to mend it: unset TILEWRIGHT_CUDNN_PATH"
    call("explain", matmul, "--device", "h200", env={"TILEWRIGHT_CUDNN_PATH": "off"}, out=[reason])
    # The field's own variable comes before what is found without it.
    env = {"TILEWRIGHT_CUDNN_PATH": "", "CUDNN_PATH": right}
    call("doctor", "--verbose", env=env, out=[f"{right} (CUDNN_PATH): libcudnn.so.9, version 9.2.1"])


def test_vendor():
    """Each way of not having oneDNN is a reason with what to do about it; the other engines are not touched."""
    for path, text in [("off", "switched off by TILEWRIGHT_ONEDNN_PATH=off"),
                       ("/absent/libdnnl.so.2", "/absent/libdnnl.so.2: cannot open shared object file"),
                       ("/absent/libdnnl.so.2", "apt-get install libdnnl2"),
                       ("libm.so.6", "it has no dnnl_version")]:
        call("doctor", out=[text], env={"TILEWRIGHT_ONEDNN_PATH": path})
        report = json.loads(call("doctor", "--json", env={"TILEWRIGHT_ONEDNN_PATH": path}))
        available = {e["name"]: e["available"] for e in report["engines"]}
        assert available["cpu.fused"] and not available["onednn"] and available["reference"], available


def test_ops():
    call("ops", out=["conv_fprop", "SDPA_BWD", "[Bias]"])
    call("ops", "conv_fprop", out=["pre_padding", "required", "CROSS_CORRELATION"])
    call("ops", "POINTWISE", out=["mode is one of", "GELU_FWD"])
    call("ops", "juggle", code=1, err=['no op "juggle"'])


def test_run():
    small = path("small.json", SMALL)
    call("run", small, out=["plan", "time", "rate", "Y", "[3, 5]", "seed 0"])
    call("run", small, "--check", "--integers", "--repeat", "2", out=["median of 2 runs", "max error", "ok"])
    call("run", small, "--engine", "reference", "--check", out=["reference"])
    call("run", "-", "--plan", "0", stdin=json.dumps(SMALL), out=["plan   0 "])
    call("run", small, "--engine", "nobody", code=1, err=['"nobody" in its name', "tilewright plans"])
    call("run", small, "--plan", "99", code=1, err=["plan 99"])
    call("run", "absent.json", code=1, err=['cannot read "absent.json"', "No such file"])
    call("run", path("text.json", "hello"), code=1, err=["is not JSON"])
    wrong = json.loads(json.dumps(SMALL))
    wrong["nodes"][0]["tag"] = "juggle"
    call("run", path("wrong.json", wrong), code=1, err=["juggle"])
    wrong = json.loads(json.dumps(SMALL))
    wrong["tensors"]["Z"]["dim"] = [4, 5]
    call("run", path("shape.json", wrong), code=1, err=["shape.json", "add"])


def test_npy():
    small = path("small.json", SMALL)
    call("run", small, "--out", "Y=y.npy", "--out", "Y=y2.npy", out=["wrote y.npy"])
    with open(path("y.npy"), "rb") as f:
        y = f.read()
    assert y.startswith(b"\x93NUMPY") and b"'shape': (3, 5, )" in y and len(y) % 64 == 60, y[:80]
    # The result of relu is its own relu: feeding it back with zeros gives it again.
    zeros = y[: len(y) - 60] + bytes(60)
    with open(path("zero.npy"), "wb") as f:
        f.write(zeros)
    call("run", "--in", "X=y.npy", "--in", "Z=zero.npy", "--out", "Y=again.npy", small, "--check", out=["2 from files"])
    with open(path("again.npy"), "rb") as f:
        assert f.read() == y
    call("run", small, "--in", "Q=y.npy", code=1, err=['no input "Q"; it has X, Z'])
    call("run", small, "--out", "X=y.npy", code=1, err=['no output "X"; it has Y'])
    call("run", small, "--in", "X", code=2, err=["NAME=FILE.npy"])
    call("run", small, "--in", "X=small.json", code=1, err=["small.json", "\\x93NUMPY"])
    call("run", maxpool, "--in", "X=y.npy", code=1, err=["shape is [3, 5]", "[2, 16, 31, 33]"])


def test_tune():
    small = path("small.json", SMALL)
    call("tune", small, "--seconds", "0.02", out=["FLOP/s", "workspace", "reference", "ok", "limits copies at", "of limit"])
    report = json.loads(call("tune", small, "--seconds", "0.02", "--json", "-"))
    assert all(p["ok"] and p["time_ms"]["median"] > 0 and p["of_roofline"] > 0 for p in report["plans"]), report
    call("tune", small, "--seconds", "0.02", "--json", "tuned.json", "--no-check", out=["plan"])
    with open(path("tuned.json")) as f:
        assert json.load(f)["plans"]
    call("tune", small, "--engine", "nobody", code=1, err=["nobody"])


def test_tuned():
    """What tune measured is what later processes take first."""
    small, db = path("small.json", SMALL), path("tuned.jsonl")
    env = {"TILEWRIGHT_TUNING_DB": db}
    before = json.loads(call("plans", small, "--json", env=env))["plans"][0]
    call("tune", small, "--seconds", "0.01", out=[f"remembered in {db}"], env=env)
    with open(db) as f:
        lines = [json.loads(line) for line in f]
    # What the machine reaches is measured once, and kept beside.
    with open(path("roofline.json")) as f:
        limits = json.load(f)
    assert len(limits) == 1 and all(v["bytes_per_s"] > 0 and v["flops_per_s"] > 0 for v in limits.values()), limits
    known = {key: {"bytes_per_s": 5e12, "flops_per_s": 7e14} for key in limits}
    path("roofline.json", known)
    call("tune", small, "--seconds", "0.01", out=["copies at 5.00 TB/s, a FLOAT matmul at 700 TFLOP/s"], env=env)
    path("roofline.json", "no JSON")
    call("tune", small, "--seconds", "0.01", out=["limits copies at"], env=env)
    with open(path("roofline.json")) as f:
        assert json.load(f).keys() == limits.keys()
    with open(db) as f:
        lines = [json.loads(line) for line in f]
    slowest = max(lines, key=lambda line: line["ms"])
    with open(db, "a") as f:
        f.write("not a line of ours\n" + json.dumps({**slowest, "ms": 1e-6}) + "\n")
    first = json.loads(call("plans", small, "--json", env=env))["plans"][0]
    assert first["name"] in (slowest["engine"], f"{slowest['engine']}[{slowest['config']}]"), (before, first)
    call("explain", small, out=["First plan", "fastest when tuned: 1e-06 ms"], env=env)
    call("doctor", out=[f"{db}: {len(lines) + 1} measurements, 1 lines not understood"], env=env)
    # Without a place to write to it still tunes, and says so.
    away = {"TILEWRIGHT_TUNING_DB": "/proc/absent/tuned.jsonl"}
    call("tune", small, "--seconds", "0.01", out=["nothing is remembered: cannot open /proc/absent/tuned.jsonl"], env=away)
    call("tune", small, "--seconds", "0.01", out=["nothing is remembered"], env={"TILEWRIGHT_TUNING_DB": "off"})


def test_explain():
    call("explain", matmul, out=["Graph", "matmul", "reference", "yes"])
    report = json.loads(call("explain", matmul, "--json"))
    assert [n["op"] for n in report["nodes"]][0] == "matmul"
    assert any(e["takes_it"] for e in report["engines"])
    call("explain", "absent.json", code=1, err=["absent.json"])


def nvrtc():
    """Where GPU kernels can be compiled."""
    return next(l for l in json.loads(call("doctor", "--json"))["libraries"] if l["name"] == "NVRTC")["found"]


def test_source():
    """The kernels that a plan is compiled from, as a reader and as a program get them; and all of them in a folder."""
    small, env = path("small.json", SMALL), {"TILEWRIGHT_NVRTC_PATH": "off"}
    off = "NVRTC is switched off by TILEWRIGHT_NVRTC_PATH=off"
    call("explain", small, "--source", "--device", "h200", code=1, err=["no generated kernels", off], env=env)
    call("explain", small, "--source", code=1, err=["no generated kernels", "--device h200"])
    if not nvrtc():
        return
    text = call("explain", small, "--source", "--device", "sm_80", out=["kernel 1 of 1: map add+relu_fwd", 'load "X"'])
    assert text.count("tw_kernel(") == 1 and "DEV F f2_ADD(" in text, text
    report = json.loads(call("explain", small, "--source", "--json", "--device", "compute_75"))
    assert report["target"].startswith("cuda:compute_75,") and report["kernels"][0]["text"] in text, report
    call("explain", small, "--source", "--plan", "99", "--device", "sm_80", code=1, err=["no plan 99"])
    dump = {"TILEWRIGHT_DUMP": path("dumped"), "TILEWRIGHT_KERNELS": "off"}
    call("compile", small, "--target", "sm_80", "-o", "small.tw", out=["cuda"], env=dump)
    names = sorted(os.listdir(path("dumped")))
    kinds = {os.path.splitext(n)[1] for n in names if n != "tilewright"}
    assert kinds == {".cu", ".cubin", ".log"} and all(n.startswith(("map_add", "tilewright")) for n in names), names
    with open(os.path.join(path("dumped"), next(n for n in names if n.endswith(".cu")))) as f:
        assert f.read() in text
    assert os.path.exists(os.path.join(path("dumped"), "tilewright/prelude.cuh")), "what the text includes lies beside it"


def test_ours():
    """No graph is refused on a GPU without cuDNN: engine cuda has a plan for each, and the host is the last resort."""
    if not nvrtc():
        return
    for graph in graphs:
        for device in ["h200", "sm_75", "compute_75"]:
            plans = json.loads(call("plans", graph, "--device", device, "--json", env={"TILEWRIGHT_CUDNN_PATH": "off"}))["plans"]
            listed = [p["engine"] for p in plans if p["index"] >= 0]
            assert listed[0] == "cuda" and "host" in listed, (graph, device, plans)
    call("compile", *graphs, "--target", "sm_90a", "-o", "all/", out=["all/maxpool.tw"])


def test_compile():
    """Plan files made ahead of time, for this machine's CPU and for GPUs that are not here."""
    small = path("small.json", SMALL)
    call("compile", small, "-o", "native.tw", out=["native.tw", "cpu.fused", "for cpu:"])
    call("run", "native.tw", "--check", out=["ok", "cpu.fused"])
    call("check", "native.tw", "--seeds", "1", out=["all right"])
    call("compile", small, "-o", "reference.tw", "--engine", "reference", out=["reference"])
    call("compile", small, "-o", "x.tw", "--target", "sm_12", code=2, err=["--target sm_12", "no GPU architecture", "compute_NN"])
    call("compile", small, "-o", "", code=2, err=["--output"])
    call("compile", small, code=2, err=["--output"])
    call("compile", small, small, "-o", "two", code=1, err=["goes to"])
    call("compile", small, "--target", "h200", "-o", "/proc/absent/x.tw", code=1)
    off = {"TILEWRIGHT_NVRTC_PATH": "off"}
    call("compile", small, "--target", "sm_90a", "-o", "x.tw", code=1, err=["cuda: library: NVRTC is switched off"], env=off)
    if not nvrtc():
        return
    call("compile", small, "--target", "sm_90a", "-o", "hopper.tw", out=["cuda[fuse=all]", "as sm_90a"])
    other = path("other.json", SMALL)
    call("compile", small, other, "--target", "compute_75", "-o", "ptx/", out=["ptx/other.tw", "as compute_75"])
    for file, marker in [("hopper.tw", b"\x7fELF"), ("ptx/small.tw", b".target sm_75")]:
        with open(path(file), "rb") as f:
            assert marker in f.read(), file
    call("run", "hopper.tw", code=1, err=["hopper.tw", "does not fit", "serves GPUs"])
    # A stand-in for a GPU of compute capability 9.0, where no compiler is: what is not for it is told apart.
    gpu = {"LD_LIBRARY_PATH": os.path.join(stubs, "gpu"), "TILEWRIGHT_CUDNN_PATH": "off", "TILEWRIGHT_DEVICE": "cuda:0", **off}
    call("compile", small, "--target", "sm_80", "-o", "ampere.tw", out=["as sm_80"])
    call("run", "ampere.tw", code=1, err=["kernels are for sm_80", "compute capability 9.0 does not run", "sm_90a"], env=gpu)
    call("run", "hopper.tw", "--device", "cuda:0,compute_80", code=1, err=["kernels are for sm_90a"], env=gpu)
    call("run", "hopper.tw", code=1, err=["cuModuleLoadData"], env=gpu)  # which the stand-in has not
    call("run", "ptx/small.tw", "--device", "cuda:0,compute_75", code=1, err=["cuModuleLoadData"], env=gpu)
    call("run", small, "--device", "cuda:0,compute_100", code=1, err=["compute_75 to compute_90"], env=gpu)


def test_plans():
    call("plans", matmul, out=["reference", "listed"])
    report = json.loads(call("plans", matmul, "--json"))
    assert report["plans"][0]["index"] == 0 and report["plans"][0]["engine"]


def test_device():
    """What a verb plans for: a device of this machine, or a target that is only planned for."""
    small = path("small.json", SMALL)
    off = {"TILEWRIGHT_CUDNN_PATH": "off", "TILEWRIGHT_DEVICE": ""}  # no engine for a GPU of this machine
    call("run", small, "--device", "cpu", "--check", out=["device cpu:", "ok"])
    call("run", small, out=["device cpu:"], env=off)
    assert json.loads(call("plans", small, "--device", "h200", "--json"))["target"].startswith("cuda:sm_90")
    report = json.loads(call("explain", small, "--device", "cuda:sm_80,sms=108", "--json"))
    assert report["target"].startswith("cuda:sm_80,sms=108"), report["target"]
    assert {e["name"] for e in report["engines"]} & {"cpu.fused", "reference"} == set(), report["engines"]
    call("plans", small, "--device", "cpu:avx2,threads=64", out=["cpu.fused"])
    assert json.loads(call("plans", small, "--json", env={"TILEWRIGHT_DEVICE": "h200"}))["target"].startswith("cuda:")
    call("run", small, "--device", "cpu", out=["device cpu:"], env={"TILEWRIGHT_DEVICE": "h200"})
    for verb in ["run", "tune", "check"]:
        call(verb, small, "--device", "h200", code=1, err=["--device h200", "can be made here, but not run", "tilewright plans"])
        call(verb, small, "--device", "cuda:77", code=1, err=["--device cuda:77"])
    call("tour", "--quick", "--device", "h200", code=1, err=["--device h200", "not run"])
    for wrong in ["bogus", "cuda:x", "cuda:sm_90,sms=0", "cpu:z80", ""]:
        call("plans", small, "--device", wrong, code=2, err=[f"--device {wrong}", "expected"])
    call("plans", small, code=2, err=["--device bogus"], env={"TILEWRIGHT_DEVICE": "bogus"})


def on_gpu(env, name):
    """The verbs on the first GPU."""
    env = {"TILEWRIGHT_DEVICE": "cuda:0", "TILEWRIGHT_TUNING_DB": path(name), **env}
    call("run", matmul, "--check", out=["device NVIDIA", "ok"], env=env)
    call("tune", matmul, "--seconds", "0.05", out=["NVIDIA", "limits", "remembered in"], env=env)
    call("check", matmul, maxpool, "--seeds", "2", out=["all right"], env=env)
    call("plans", matmul, out=["listed"], env=env)
    assert "cuda:sm_" in call("tour", "--quick", out=["8/8"], env=env)
    call("run", matmul, "--device", "cuda:99", code=1, err=["--device cuda:99"], env=env)
    call("compile", matmul, "-o", f"{name}.tw", "--engine", "host", out=[f"{name}.tw"], env=env)
    if not env.get("TILEWRIGHT_NVRTC_PATH"):
        on_gpu_by_our_kernels(env, name)
    call("run", matmul, "--device", "cpu", out=["device cpu:"], env=env)


def on_gpu_by_our_kernels(env, name):
    """Without cuDNN, and a plan without a compiler too; as machine code, and as PTX of an older architecture."""
    env = {**env, "TILEWRIGHT_CUDNN_PATH": "off"}
    for device in ["cuda:0", "cuda:0,compute_75"]:
        assert "host" not in call("tour", "--quick", "--device", device, out=["8/8"], env=env)
        call("compile", *graphs, "--target", device, "-o", f"{name}/", out=[f"{name}/matmul_gelu.tw"], env=env)
        plans = sorted(glob.glob(os.path.join(path(name), "*.tw")))
        call("check", *plans, "--seeds", "1", "-q", out=["all right"], env={**env, "TILEWRIGHT_NVRTC_PATH": "off"})


def test_gpu():
    if not json.loads(call("doctor", "--json"))["gpus"]:
        print("skipped: the driver lists no GPU")
        sys.exit(77)
    on_gpu({}, "gpu.jsonl")


def test_stand_in():
    """The same on a driver that is a stand-in over the host's memory, which runs no kernels."""
    folder = os.path.join(stubs, "gpu")
    env = {"LD_LIBRARY_PATH": folder, "TILEWRIGHT_CUDNN_PATH": "off", "TILEWRIGHT_NVRTC_PATH": "off"}
    call("doctor", out=["NVIDIA stand-in"], env=env)
    on_gpu(env, "stand_in.jsonl")
    call("run", matmul, out=["device cpu:"], env={**env, "TILEWRIGHT_DEVICE": ""})  # nothing but copies to the host


def test_show():
    for graph in graphs:
        svg = call("show", graph, "-o", "-")
        document = xml.dom.minidom.parseString(svg)
        texts = [t.firstChild.data for t in document.getElementsByTagName("text") if t.firstChild]
        with open(graph) as f:
            names = [n["name"] for n in json.load(f)["nodes"]]
        assert set(names) <= set(texts), (graph, names, texts)
    call("show", path("small.json", SMALL))
    assert os.path.exists(path("small.svg"))
    hostile = json.loads(json.dumps(SMALL).replace('"relu"', '"<a & b>"'))
    xml.dom.minidom.parseString(call("show", path("hostile.json", hostile), "-o", "-"))
    call("show", path("small.json", SMALL), "-o", "/nowhere/x.svg", code=1, err=["cannot write"])


def test_check():
    small = [g for g in graphs if "conv_bias" not in g]
    call("check", *small, "--seeds", "1", out=["all right", f"{len(small)} graphs"])
    call("check", maxpool, "--fill", "integers", "--seed", "3", "--seeds", "2", "-q", out=["all right"])
    call("check", maxpool, "--plan", "99", code=1, err=["no plan"])
    call("check", maxpool, "--fill", "sand", code=2)


def test_import():
    log = path("fe.log", "INFO {\n" + json.dumps(SMALL) + "\nlast one:\n" + json.dumps({**SMALL, "context": {"name": "last"}}) + "\n")
    assert json.loads(call("import", log, err=["graph 1 of 2"]))["context"]["name"] == "last"
    assert json.loads(call("import", log, "--index", "0", err=["valid"]))["context"]["name"] == "small"
    assert len(json.loads(call("import", log, "--all"))) == 2
    call("import", log, "--index", "0", "-o", "g.json")
    call("run", "g.json", "--check", out=["ok"])
    call("import", log, "--index", "7", code=1, err=["holds 2 graphs"])
    call("import", path("empty.log", "nothing"), code=1, err=["holds no graph"])


def test_tour():
    call("tour", "--quick", out=["8/8", "Causal attention", "from the cache", "recorded"])
    call("tour", "--quick", "4", "6", out=["2/2", "loaded in"])


def test_examples():
    programs = sorted(glob.glob(os.path.join(os.path.dirname(tool), "examples", "0*")))
    assert len(programs) == 8, programs
    for program in programs:
        done = subprocess.run([program, "--quick"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "of what rounding can explain" in done.stdout, (program, done.stdout, done.stderr)


def test_schema():
    with open(os.path.join(source, "docs/graph-file.schema.json")) as f:
        schema = json.load(f)
    try:
        import jsonschema
    except ImportError:
        print("the Python package jsonschema is not here: only the syntax of the schema was read")
        return
    jsonschema.Draft7Validator.check_schema(schema)
    log = path("fe.log", json.dumps(SMALL))
    call("import", log, "-o", "imported.json")
    for graph in [*graphs, path("imported.json")]:
        with open(graph) as f:
            jsonschema.validate(json.load(f), schema)
    for wrong in [[], {}, {"nodes": [{}]}, {"nodes": [], "tensors": {"X": {"dims": [1]}}}, {"nodes": [], "tensors": {"X": {"dim": [0.5]}}}]:
        try:
            jsonschema.validate(wrong, schema)
        except jsonschema.ValidationError:
            continue
        raise AssertionError(f"the schema takes {wrong}")


globals()["test_" + part]()
