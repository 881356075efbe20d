#!/usr/bin/env python3
"""Conversations and batches beside llama.cpp: time to the first token of each turn, tokens a second of several at once.

    python3 benches/conversations.py MODEL.gguf… [--binary target/release/turbospark] [--rounds 3]

Needs a release build and the package `xllamacpp` (prebuilt llama.cpp) for the Python that runs it. Both sides get the same
token counts, 2 threads and f16 caches, in turn within each round; medians over the rounds are printed as Markdown, the
extremes in brackets. As root both run under round-robin real-time scheduling, so that other work on the machine disturbs
them less. llama.cpp runs as its own server code with its prompt cache on for turns, and one slot a sequence for batches.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, threading, time


def conversation(tokens, turns):
    """The cuts of `bench --turns`: (prompt end, answer end) of each turn."""
    share = (tokens - tokens // 5) // turns
    question = share * 2 // 5
    first = tokens - (turns - 1) * share - question
    return [(first + t * share + question, first + (t + 1) * share) for t in range(turns)]


def ids(count, vocab=30000):
    return [(i * 7919 + 13) % vocab for i in range(count)]


def server(model, context, parallel):
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.n_parallel = parallel
    params.n_gpu_layers = 0
    params.verbosity = -1
    params.warmup = False
    params.fit_params = False
    return xllamacpp.Server(params)


def complete(host, prompt, count, cache):
    answer = host.handle_completions({"prompt": prompt, "n_predict": count, "max_tokens": count, "temperature": 0,
                                      "ignore_eos": True, "cache_prompt": cache})
    return json.loads(answer) if isinstance(answer, (str, bytes)) else answer


def peer_turns(model, tokens, turns):
    """Seconds to the first token of each turn, and of the last prompt without a cache."""
    host, cuts = server(model, tokens + 64, 1), conversation(tokens, turns)
    text = ids(cuts[-1][0])
    complete(host, ids(64)[::-1], 1, False)
    times = []
    for prompt, answer in cuts:
        start = time.perf_counter()
        complete(host, text[:prompt], 1, True)
        times.append(time.perf_counter() - start)
        # The answer enters the cache as it would by being generated.
        if answer <= len(text):
            complete(host, text[:answer], 1, True)
    start = time.perf_counter()
    complete(host, text, 1, False)
    return {"first_token_s": times, "cold_s": time.perf_counter() - start}


def peer_sequences(model, counts, length):
    """Tokens a second of all sequences together, decoding `length` tokens each after a prompt of 8."""
    rates = {}
    for count in counts:
        host, answers = server(model, 256 * count, count), {}

        def ask(at):
            answers[at] = complete(host, ids(8 + at)[at:], length, False)["timings"]["predicted_ms"]

        for _ in range(2):  # the first is a warm-up
            threads = [threading.Thread(target=ask, args=(at,)) for at in range(count)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        rates[count] = count * (length - 1) / max(answers.values()) * 1e3
    return rates


def run(command):
    if os.geteuid() == 0 and shutil.which("chrt"):
        command = ["chrt", "-r", "1"] + command
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])


def worker(what, model, *rest):
    if what == "turns":
        result = peer_turns(model, int(rest[0]), int(rest[1]))
    else:
        result = peer_sequences(model, [int(n) for n in rest[0].split(",")], int(rest[1]))
    print(json.dumps(result), flush=True)
    os._exit(0)  # the server's threads have no end of their own


def spread(values, scale=1.0, digits=1):
    middle, least, most = (scale * f(values) for f in (statistics.median, min, max))
    return f"{middle:.{digits}f} ({least:.{digits}f}–{most:.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--binary", default="target/release/turbospark")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--sequences", default="1,2,4,8,16")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--only", choices=["turns", "sequences"])
    parser.add_argument("--no-peer", action="store_true", help="for models llama.cpp cannot read")
    parser.add_argument("--ours", default="", help="further options for our side")
    arguments = parser.parse_args()
    ours = [arguments.binary, "bench", "--json", "--threads", "2", "--pp", "8"] + arguments.ours.split()
    script = [sys.executable, os.path.abspath(__file__), "--worker"]
    for model in map(os.path.abspath, arguments.models):
        sides = ["ours"] if arguments.no_peer else ["ours", "llama.cpp"]
        name = os.path.basename(model)
        if arguments.only != "sequences":
            found = {side: [] for side in sides}
            for round in range(arguments.rounds):
                for side in sides[:: 1 if round % 2 == 0 else -1]:
                    found[side].append(run(
                        ours + ["--reps", "1", "--tg", "8", "--depth", str(arguments.tokens), "--turns",
                                str(arguments.turns), model]
                        if side == "ours" else
                        script + ["turns", model, str(arguments.tokens), str(arguments.turns)]))
            print(f"\n{name}, {arguments.turns} turns, {arguments.tokens} tokens, {arguments.rounds} rounds\n")
            print("| | turn 2, ms | last turn, ms | last prompt cold, ms | cold ÷ last turn |\n|---|---|---|---|---|")
            for side in sides:
                rounds = found[side]
                cells = [spread([r["first_token_s"][at] for r in rounds], 1e3) for at in (1, -1)]
                cells.append(spread([r["cold_s"] for r in rounds], 1e3))
                cells.append(spread([r["cold_s"] / r["first_token_s"][-1] for r in rounds]))
                print(f"| {side} | " + " | ".join(cells) + " |", flush=True)
        if arguments.only != "turns":
            found, length = {side: [] for side in sides}, str(arguments.length)
            for round in range(arguments.rounds):
                for side in sides[:: 1 if round % 2 == 0 else -1]:
                    if side == "ours":
                        result = run(ours + ["--reps", "1", "--tg", length, "--sequences", arguments.sequences, model])
                        rates = {k.split("x")[-1]: v for k, v in result["aggregate_tok_s"].items()}
                    else:
                        rates = run(script + ["sequences", model, arguments.sequences, length])
                    found[side].append(rates)
            counts = arguments.sequences.split(",")
            print(f"\n{name}, {length} tokens each, all tokens a second, {arguments.rounds} rounds\n")
            print("| sequences | " + " | ".join(counts) + " |\n|---|" + "---|" * len(counts))
            for side in sides:
                print(f"| {side} | " + " | ".join(spread([r[n] for r in found[side]]) for n in counts) + " |", flush=True)


if __name__ == "__main__":
    worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main()
