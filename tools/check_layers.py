#!/usr/bin/env python3
"""Checks that no folder includes one above it.

ALLOWED is the table of which folders of the library each folder may include, besides itself. Quoted includes are
checked; `tilewright/...` (the public headers) may be included from everywhere. Prints one line per offence and
returns 1 if there are any.
"""

import pathlib
import re
import sys

# folder: what it may include. A folder takes over all that the named ones may include.
ALLOWED = {
    "base": [],
    "layout": ["base"],
    "device": ["base"],
    "ir": ["layout"],
    "ops": ["ir"],
    "fuse": ["ops"],
    "plan": ["fuse", "device"],
    "engines": ["plan"],
    "frontend": ["engines"],
    "c_api": [],  # the public headers only
    "tools": ["frontend"],
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def reachable(folder):
    seen, todo = set(), [folder]
    while todo:
        f = todo.pop()
        if f not in seen:
            seen.add(f)
            todo += ALLOWED[f]
    return seen


def folder_of(path):
    """The layer of a path such as src/ops/matmul.cc or ops/rewriter.h, and for an engine its own folder."""
    parts = [p for p in path.parts if p != "src"]
    layer = parts[0] if len(parts) > 1 else None
    engine = parts[1] if layer == "engines" and len(parts) > 2 else None
    return layer, engine


def check(root):
    offences = []
    files = [p for d in ("src", "tools") for e in ("*.h", "*.cc") for p in (root / d).rglob(e)]
    for path in sorted(files):
        here = path.relative_to(root)
        layer, engine = folder_of(here)
        if layer not in ALLOWED:
            offences.append(f"{here}: folder {layer} is not in the table of tools/check_layers.py")
            continue
        text = path.read_text()
        for match in INCLUDE.finditer(text):
            target = pathlib.PurePosixPath(match.group(1))
            to, to_engine = folder_of(target)
            if to not in ALLOWED:  # a public header, a neighbour without folder, another library
                continue
            line = text.count("\n", 0, match.start()) + 1
            if to not in reachable(layer):
                offences.append(f"{here}:{line}: {layer} may not include {to} ({target})")
            elif to_engine and engine and to_engine != engine:
                offences.append(f"{here}:{line}: engines/{engine} may not include engines/{to_engine} ({target})")
    return offences


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    offences = check(root)
    print("\n".join(offences) if offences else "no folder includes one above it")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
