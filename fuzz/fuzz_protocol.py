"""Fuzz the protocols until the time or the number of inputs is reached.

    python -m fuzz.fuzz_protocol --seconds 60            every protocol, a minute each
    python -m fuzz.fuzz_protocol --inputs 1000000 umq    one protocol, a million inputs
    python -m fuzz.fuzz_protocol --engine plain --seed 7 nq

An input that violates a property is written to fuzz/finds/; turn it into a vector before fixing the code.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random

from fiveways.protocols import registry
from fiveways.protocols.base import ProtocolSpec
from fuzz.fuzz_target import Engine, seeds, try_input
from fuzz.mutation import MAX_SIZE, mutate

FINDS = Path(__file__).parent / "finds"


def main() -> int:
    """Run the fuzzer; return 1 if there is a finding."""
    options = arguments()
    failed = False
    for name in options.protocol or registry.PROTOCOLS:
        if options.engine == Engine.ATHERIS.value:
            failed |= run_guided(name, options.inputs, options.seconds)
        else:
            failed |= run_plain(registry.load(name), options.inputs, options.seconds, options.seed)
    return int(failed)


def arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", nargs="*", help=f"one of {', '.join(registry.PROTOCOLS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="time limit per protocol (default 60)")
    parser.add_argument("--inputs", type=int, default=0, help="limit of inputs per protocol (default: no limit)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the plain engine")
    default = Engine.ATHERIS if find_spec("atheris") else Engine.PLAIN
    parser.add_argument("--engine", choices=[engine.value for engine in Engine], default=default.value)
    options = parser.parse_args()
    if unknown := set(options.protocol) - set(registry.PROTOCOLS):
        parser.error(f"unknown protocol {', '.join(sorted(unknown))}: choose from {', '.join(registry.PROTOCOLS)}")
    return options


def run_plain(spec: ProtocolSpec, inputs: int, seconds: int, seed: int) -> bool:
    """Damage the vectors at random; return True if there is a finding."""
    random, stop_at, tried, findings = Random(seed), time.monotonic() + seconds, 0, 0
    while time.monotonic() < stop_at and (not inputs or tried < inputs) and findings < 10:
        data = mutate(random, seeds(spec))
        tried += 1
        if tried % 100_000 == 0:
            print(f"{spec.name}: {tried} inputs so far, {findings} finds", file=sys.stderr, flush=True)
        try:
            try_input(spec, data)
        except Exception as exc:  # noqa: BLE001  any exception is a finding
            findings += 1
            print(f"{spec.name}: {type(exc).__name__}: {exc} (saved in {save_input(spec, data)})")
    print(f"{spec.name}: {tried} inputs, {findings} finds (plain, seed {seed})", flush=True)
    return bool(findings)


def save_input(spec: ProtocolSpec, data: bytes) -> Path:
    """Write an input that violated a property."""
    FINDS.mkdir(exist_ok=True)
    path = FINDS / f"{spec.name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return path


def run_guided(name: str, inputs: int, seconds: int) -> bool:
    """Run atheris in a process of its own, which the engine ends; return True if there is a finding."""
    FINDS.mkdir(exist_ok=True)
    print(f"{name}: guided by coverage, time limit {seconds} s", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds(registry.load(name))):
            (Path(corpus) / f"{number:05}").write_bytes(seed)
        flags = [f"-max_total_time={seconds}", f"-runs={inputs or -1}", f"-max_len={MAX_SIZE}", "-print_final_stats=1"]
        command = [
            sys.executable,
            "-m",
            "fuzz.atheris_fuzzer",
            name,
            corpus,
            *flags,
            f"-artifact_prefix={FINDS}/{name}-",
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  our own program
    lines = done.stderr.splitlines() + done.stdout.splitlines()
    tried = next((line.split()[-1] for line in lines if "number_of_executed_units" in line), "no")
    print(f"{name}: {tried} inputs, {'a find' if done.returncode else '0 finds'} (guided by coverage)", flush=True)
    if done.returncode:
        print("\n".join(lines[-40:]))
    return bool(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
