#!/usr/bin/env python3
"""Renders docs/performance.md from docs/performance/cpu.json and h200.json, which `./dev bench cpu --publish` and
`./dev bench gpu --publish` write, and from the notes beside them, which are written by hand."""

import json
import pathlib
import sys


def milliseconds(ms):
    if ms == 0:
        return ""
    if ms < 1e-3:
        return f"{ms * 1e6:.0f} ns"
    if ms < 1:
        return f"{ms * 1e3:.0f} us"
    return f"{ms:.2f} ms"


def number(x):
    return f"{x:.2f}" if x else ""


def short(peer):
    return "" if not peer else peer.split(" ")[0] if peer.startswith("onednn ") else peer.split(":")[0]


def row_text(r):
    also = "; ".join(f"{short(name)} {milliseconds(ms)}" for name, ms in r.get("also", {}).items())
    if "extra_bytes" in r:
        also += f"{'; ' if also else ''}{r['extra_bytes'] / 1e6:.1f} MB beyond the tensors"
    verdict = "wrong" if r.get("error") else "" if not r["target"] else "yes" if r["ok"] else "**no**"
    cells = [r["row"], milliseconds(r["ours_ms"]), short(r["peer"]), milliseconds(r["peer_ms"]), number(r["ratio"]),
             number(r["target"]), verdict, milliseconds(r["plan0_ms"]), milliseconds(r["best_ms"]), also]
    return "| " + " | ".join(cells) + " |"


def shortfalls(rows):
    for r in rows:
        if r.get("error"):
            yield f"* `{r['row']}`: {r['error']}"
        elif r["target"] and not r["ok"]:
            yield f"* `{r['row']}`: {r['ratio']:.2f} of {r['target']:.2f}"
        if not r["plan0_ok"]:
            yield f"* `{r['row']}`: plan 0 is {r['plan0']}, {r['plan0_ms'] / r['best_ms']:.2f} times as slow as {r['best']}"


def render(data, notes=""):
    m, rows = data["machine"], data["rows"]
    lines = [
        "# Performance",
        "",
        "## On a CPU",
        "",
        "Measured by `./dev bench cpu --publish`, which rewrites this page; `./dev bench cpu --help` says how.",
        "",
        f"{m['cpu']}, {m['target']}, {m['threads']} threads, last-level cache {m['last_level_cache_bytes'] >> 20} MiB; "
        f"Tilewright {m['tilewright']}, oneDNN {m['onednn'] or 'not there'}; {m['date']}.",
        "",
        "\"ours\" is the best-ranked plan of `cpu.fused`; \"peer\" what the row is held against: oneDNN with its post-ops "
        "(the weights of convolutions are constants, which both sides keep packed), copying as many bytes, or our own plan in FLOAT; \"ratio\" the peer's time "
        "over ours. \"plan 0\" is what a program gets by default, \"best\" the fastest plan of the list. Times are medians, "
        "contestants take turns, and every result was checked.",
        "",
        "| row | ours | peer | its time | ratio | target | reached | plan 0 | best | also |",
        "|---|---:|---|---:|---:|---:|---|---:|---:|---|",
        *map(row_text, rows),
        "",
    ]
    missing = list(shortfalls(rows))
    lines += ["Short of what is wanted:", "", *missing, ""] if missing else ["Every row reaches its target.", ""]
    if missing and notes:
        lines.append(notes)
    return "\n".join(lines)


def microseconds(ms):
    return "" if ms <= 0 else f"{ms * 1e3:.2f} us" if ms < 1 else f"{ms:.3f} ms"


def rate(r):
    tera = r["rate"] / 1e12
    # What takes no flops and moves no bytes, such as a call, has no rate.
    return "" if tera <= 0 else f"{tera:.0f} TFLOP/s" if r["rate_unit"] == "FLOP/s" else f"{tera:.2f} TB/s"


def gpu_row_text(r, peers):
    cells = [r["row"], r["engine"], microseconds(r["plan0_ms"]), microseconds(r["best_ms"]), rate(r),
             f"{100 * r['copy_ms'] / r['best_ms']:.0f} %" if r["copy_ms"] and r["best_ms"] else "",
             number(r["ratio_to_cudnn_best"]), str(r["plans"] or "")]
    for name in peers:
        peer = r.get("peers", {}).get(name, {})
        cells += [microseconds(peer.get("ms", 0)), number(peer.get("ratio", 0))]
    refused = r.get("note", "") if not r["plan"] else ""
    wrong = r["error"] or refused
    verdict = "wrong" if r["error"] else "refused" if refused else "" if not r["target"] else "yes" if r["ok"] else "**no**"
    return "| " + " | ".join([*cells, verdict, f"`{r['plan']}`" if r["plan"] else "see below" if wrong else ""]) + " |"


def gpu_remarks(rows):
    for r in rows:
        which = f"`{r['row']}` ({r['engine']})" if r["engine"] else f"`{r['row']}`"
        if r["error"]:
            yield f"* {which}: {r['error']}"
        elif not r["plan"]:
            yield f"* {which}: {r.get('note', '')}"
        elif r["target"] and not r["ok"]:
            # The first peer is the one that the row is held to.
            name, peer = next(iter(r["peers"].items()))
            parts = [f"{peer['ratio']:.2f} of {r['target']:.2f} of the speed of {name}"]
            built = r["plans"] - r["failed"]
            if peer.get("plans", 0) > built:
                parts.append(f"{built} plans of {peer['plans']}")
            if peer.get("plan0_ms", 0) and r["plan0_ms"] * r["target"] > peer["plan0_ms"]:
                parts.append(f"plan 0 takes {microseconds(r['plan0_ms'])} where theirs takes {microseconds(peer['plan0_ms'])}")
            yield f"* {which}: {', '.join(parts)}"


def render_gpu(data, notes=""):
    rows, peers = data["rows"], data["peers"]
    clocks = data["clocks"]
    titles = "".join(f" {name} | its ratio |" for name in peers)
    lines = [
        "## On a GPU",
        "",
        f"Measured by `{data['command']}`; `./dev bench gpu --publish` rewrites this section, `./dev bench gpu --help` "
        "says how.",
        "",
        f"{data['gpu']}, {data['target']}, clocks up to {clocks['sm_mhz']:.0f} and {clocks['memory_mhz']:.0f} MHz; driver "
        f"{data['driver']}, cuDNN {data['cudnn'] or 'not there'}, Tilewright {data['tilewright']}; {data['date']}. A large "
        f"copy reaches {data['copy_bandwidth'] / 1e12:.2f} TB/s (read and written), a large BFLOAT16 matmul "
        f"{data['matmul_rate'] / 1e12:.0f} TFLOP/s.",
        "",
        "A line per row and engine: \"plan 0\" is the engine's first plan, \"best\" the fastest of its plans, all of which "
        "were built, checked on samples of their outputs and timed; \"copy\" the time of copying as many bytes over the "
        "best time; \"to cuDNN\" the time of cuDNN's best plan over this engine's. Inputs and outputs rotate past the L2; "
        "BFLOAT16 where the row says nothing else.",
        "",
        f"| row | engine | plan 0 | best | rate | copy | to cuDNN | plans |{titles} reached | best plan |",
        "|---|---|---:|---:|---:|---:|---:|---:|" + "---:|---:|" * len(peers) + "---|---|",
        *(gpu_row_text(r, peers) for r in rows),
        "",
    ]
    remarks = list(gpu_remarks(rows))
    lines += ["What is wrong, refused or short of its target:", "", *remarks, ""] if remarks else ["Every row is right.", ""]
    if notes:
        lines.append(notes)
    return "\n".join(lines)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "docs" / "performance"
    page = folder.with_suffix(".md")
    text = []
    for figures, notes, section in [("cpu.json", "cpu-notes.md", render), ("h200.json", "gpu-notes.md", render_gpu)]:
        if (folder / figures).exists():
            written = folder / notes  # by hand: why rows are short
            text.append(section(json.loads((folder / figures).read_text()), written.read_text() if written.exists() else ""))
    page.write_text("\n".join(text))
    print(f"wrote {page.name}")


if __name__ == "__main__":
    main()
