#!/usr/bin/env python3
"""A mixture of experts bigger than the memory it may use: turbospark beside llama.cpp (xllamacpp) under the same limit.

    cargo xtask random-moe moe.gguf 12
    sudo python3 benches/experts.py target/release/turbospark moe.gguf --limit-mib 1229 --python PYTHON_WITH_XLLAMACPP

Each arm runs alone in a memory cgroup of its own (version 1 or 2, whichever the machine has), so that the page cache it fills
counts too, and begins with the file out of the cache. Prints one JSON line an arm. Without --limit-mib nothing is limited from
outside and turbospark gets the budget alone (--memory-mib): that needs no root, and is what CI runs at toy size.
"""

import argparse
import json
import os
import subprocess
import sys
import time

LLAMA = """
import json, sys, xllamacpp
path, threads, prompts, decode = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.warmup = path, max(prompts) + decode + 64, 1, False
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.no_extra_bufts, p.cache_ram_mib = True, 0  # weights repacked into memory of their own would not fit
p.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_MMAP
server = xllamacpp.Server(p)
def ask(tokens, new):
    ids = [(i * 7919 + 13) % 40000 + 100 for i in range(tokens)]
    r = server.handle_completions({"prompt": ids, "n_predict": new, "max_tokens": new, "temperature": 0,
                                   "ignore_eos": True, "cache_prompt": False})
    return (r if isinstance(r, dict) else json.loads(r))["timings"]
out = {}
for n in prompts:
    out[f"pp{n}"] = ask(n, 1)["prompt_per_second"]
out[f"tg{decode}"] = ask(16, decode)["predicted_per_second"]
print("RESULT " + json.dumps(out))
"""


class Group:
    """A memory cgroup with a limit, or none."""

    def __init__(self, mib):
        self.path = None
        if mib is None:
            return
        self.v1 = os.path.isdir("/sys/fs/cgroup/memory")
        self.path = ("/sys/fs/cgroup/memory" if self.v1 else "/sys/fs/cgroup") + f"/turbospark-{os.getpid()}-{time.time_ns()}"
        os.mkdir(self.path)
        limit, rest = ("memory.limit_in_bytes", []) if self.v1 else ("memory.max", [("memory.swap.max", 0)])
        for name, value in [(limit, mib << 20), *rest]:
            with open(f"{self.path}/{name}", "w") as file:
                file.write(str(value))

    def enter(self):
        if self.path:
            with open(f"{self.path}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    def peak(self):
        if not self.path:
            return None
        with open(f"{self.path}/{'memory.max_usage_in_bytes' if self.v1 else 'memory.peak'}") as file:
            return int(file.read())

    def close(self):
        if self.path:
            os.rmdir(self.path)


def run(command, limit):
    """What a command printed, and the group's peak of memory."""
    group = Group(limit)
    done = subprocess.run(command, preexec_fn=group.enter, capture_output=True, text=True)
    peak = group.peak()
    group.close()
    if done.returncode != 0:
        return {"failed": done.returncode, "error": done.stderr[-400:]}, peak
    return done.stdout, peak


def forget(path):
    """Takes a file out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def direct(path):
    """Bytes a second of direct reads of 1 MiB by eight threads, over at most 1 GiB."""
    import concurrent.futures
    import mmap

    size = min(os.path.getsize(path), 1 << 30) >> 20
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def part(first):
        buffer = mmap.mmap(-1, 1 << 20)
        return sum(os.preadv(file, [buffer], at << 20) for at in range(first, size, 8))

    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(part, range(8)))
    os.close(file)
    return done / (time.monotonic() - started)


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("turbospark")
    parse.add_argument("model")
    parse.add_argument("--limit-mib", type=int)
    parse.add_argument("--memory-mib", type=int, help="turbospark's budget [default: nine tenths of the limit]")
    parse.add_argument("--threads", type=int, default=os.cpu_count())
    parse.add_argument("--prompts", default="512,3000")
    parse.add_argument("--decode", type=int, default=64)
    parse.add_argument("--chunk", type=int, default=512)
    parse.add_argument("--reps", type=int, default=1)
    parse.add_argument("--python", help="a Python with xllamacpp; left out, llama.cpp is not run")
    flags = parse.parse_args()
    prompts = [int(n) for n in flags.prompts.split(",")]
    memory = flags.memory_mib or int((flags.limit_mib or 1024) * 0.9)
    print(json.dumps({"arm": "disk", "direct_bytes_s": direct(flags.model)}), flush=True)
    bench = [flags.turbospark, "bench", flags.model, "--pp", flags.prompts, "--tg", str(flags.decode), "--depth", "0"]
    bench += ["--reps", str(flags.reps), "--threads", str(flags.threads), "--prefill-chunk", str(flags.chunk)]
    bench += ["--memory", f"{memory}MiB", "--no-bandwidth", "--stats", "--json"]
    arms = {"turbospark": bench}
    if flags.python:
        arms["llama.cpp"] = [flags.python, "-c", LLAMA, flags.model, str(flags.threads), json.dumps(prompts), str(flags.decode)]
    failed = False
    for name, command in arms.items():
        forget(flags.model)
        started = time.monotonic()
        said, peak = run(command, flags.limit_mib)
        if isinstance(said, str):
            lines = [line.removeprefix("RESULT ") for line in said.splitlines() if line.startswith(("RESULT ", "{"))]
            said = json.loads(lines[-1])
        failed |= "failed" in said
        print(json.dumps({"arm": name, "peak": peak, "seconds": time.monotonic() - started, **said}), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
