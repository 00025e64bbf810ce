#!/usr/bin/env python3
"""The shared library exports what the public headers declare, and nothing else of ours.

  exports_test.py SOURCE_DIR LIBRARY
"""

import pathlib
import re
import subprocess
import sys

source, library = pathlib.Path(sys.argv[1]), sys.argv[2]
words = set()
for header in (source / "include" / "tilewright").rglob("*.h"):
    words |= set(re.findall(r"\w+", header.read_text()))

listing = subprocess.run(["nm", "-D", "--defined-only", "-C", library], capture_output=True, text=True, check=True)
exported, foreign = [], []
for line in listing.stdout.splitlines():
    kind, symbol = line.split(" ", 2)[1:]
    text = symbol.replace("[abi:cxx11]", "").replace("(anonymous namespace)", "anonymous_namespace")
    while re.search(r"<[^<>]*>", text):
        text = re.sub(r"<[^<>]*>", "", text)
    name = re.search(r"tilewright::[\w:~]*", text.split("(")[0])
    if kind not in "TDBRV" or not name:
        continue  # weak template instances, and symbols of other libraries
    exported.append(symbol)
    # The names on the way to the symbol: each must be one that a public header uses. What is inside an opaque Impl
    # shares the visibility of the class around it.
    names = re.findall(r"\w+", name.group(0).split("::Impl")[0])
    foreign += [symbol] if any(n not in words for n in names) else []

assert len(exported) > 50, f"only {len(exported)} symbols are exported"
assert not foreign, "exported, and in no public header:\n" + "\n".join(foreign)
print(f"{len(exported)} symbols exported, all of them in public headers")
