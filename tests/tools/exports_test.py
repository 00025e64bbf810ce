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
    if kind not in "TDBRV" or "tilewright::" not in symbol.split("(")[0]:
        continue  # weak template instances, and symbols of other libraries
    exported.append(symbol)
    # The names on the way to the symbol: each must be one that a public header uses.
    path = re.sub(r"^.*?(tilewright::)", r"\1", re.sub(r"<.*", "", symbol.split("(")[0])).replace("[abi:cxx11]", "")
    names = [n for n in re.split(r"::|[~\s]", path) if re.fullmatch(r"\w+", n)]
    foreign += [symbol] if any(n not in words for n in names) else []

assert len(exported) > 50, f"only {len(exported)} symbols are exported"
assert not foreign, "exported, and in no public header:\n" + "\n".join(foreign)
print(f"{len(exported)} symbols exported, all of them in public headers")
