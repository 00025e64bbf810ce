#!/usr/bin/env python3
"""tools/check_layers.py finds an include that goes up, and says which folder may not include which."""

import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"


def run(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
        return done.returncode, done.stdout


good = {
    "src/layout/view.h": '#include <vector>\n#include "base/hash.h"\n#include "tilewright/types.h"\n',
    "src/plan/list.cc": '#include "device/target.h"\n#include "layout/view.h"\n#include "plan/list.h"\n',
    "src/engines/builtin.cc": '#include "engines/cpu/engine.h"\n',
}
assert run(good) == (0, "no folder includes one above it\n"), run(good)

for name, text, complaint in [
    ("src/layout/bad.h", '\n#include "plan/list.h"\n', "src/layout/bad.h:2: layout may not include plan (plan/list.h)"),
    ("src/device/bad.cc", '#include "ir/graph.h"\n', "src/device/bad.cc:1: device may not include ir (ir/graph.h)"),
    ("src/engines/cpu/bad.cc", '#include "engines/reference/engine.h"\n',
     "src/engines/cpu/bad.cc:1: engines/cpu may not include engines/reference (engines/reference/engine.h)"),
    ("src/oddments/bad.cc", "", "src/oddments/bad.cc: folder oddments is not in the table of tools/check_layers.py"),
]:
    code, output = run({**good, name: text})
    assert code == 1 and output.strip() == complaint, (code, output)
