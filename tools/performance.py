#!/usr/bin/env python3
"""Renders docs/performance.md from docs/performance/cpu.json, which `./dev bench cpu --publish` writes."""

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


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    source = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "docs" / "performance" / "cpu.json"
    page = root / "docs" / "performance.md"
    notes = source.with_name(source.stem + "-notes.md")  # written by hand: why rows are short
    page.write_text(render(json.loads(source.read_text()), notes.read_text() if notes.exists() else ""))
    print(f"wrote {page.relative_to(root)}")


if __name__ == "__main__":
    main()
