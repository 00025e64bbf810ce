#!/usr/bin/env python3
"""Every public header compiles on its own, without warnings, and the whole API does so quickly.

  headers_test.py SOURCE_DIR COMPILER

Prints the time that `#include <tilewright/tilewright.h>` and `#include <cudnn_frontend.h>` take with -O2. The aim is
under 2 s each; the test fails at LIMIT seconds of processor time, which only a header that pulls in something large
can reach, whatever else the machine is doing.
"""

import concurrent.futures
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

LIMIT = 8.0
source, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]
include = source / "include"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
PATHS = [f"-I{include}", f"-I{include / 'compat'}"]


def compile_text(text, *options):
    done = subprocess.run([compiler, "-x", "c++", "-", *WARNINGS, *options], input=text, text=True,
                          capture_output=True)
    assert done.returncode == 0, f"{text}{options}\n{done.stderr}"


def timed(header, standard, *options):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    compile_text(f"#include <{header}>\n", f"-std=c++{standard}", "-O2", "-c", "-o", os.devnull, *PATHS, *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{seconds:5.2f} s  g++ -O2 -std=c++{standard}  #include <{header}>", flush=True)
    assert seconds < LIMIT, f"{header}: {seconds:.1f} s"


for standard in (17, 20):
    timed("tilewright/tilewright.h", standard)
    timed("cudnn_frontend.h", standard, f"-I{include / 'compat' / 'no_cudnn'}")

headers = sorted(p.relative_to(include).as_posix() for p in (include / "tilewright").rglob("*.h"))
assert len(headers) > 10
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(lambda h: compile_text(f'#include "{h}"\n', "-std=c++17", "-fsyntax-only", *PATHS), headers))
    no_cudnn = sorted((include / "compat" / "no_cudnn").glob("*.h"))
    list(pool.map(lambda h: compile_text(f'#include "{h}"\n', "-std=c++17", "-fsyntax-only", *PATHS), no_cudnn))
print(f"{len(headers) + len(no_cudnn)} headers compile on their own")
