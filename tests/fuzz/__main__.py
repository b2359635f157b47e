"""``python -m tests.fuzz NAME SECONDS``: fuzz one harness; what it finds interesting is kept under .cache/fuzz/NAME.

Ends with 0 after SECONDS; a bug ends it at once with a traceback, and its input is in .cache/fuzz/NAME-bug-….
"""

import sys
from importlib import import_module
from pathlib import Path

import atheris

HARNESSES = {  # and what of the service shows them the way
    "urls": ["service.domain", "service.sender"],
    "answers": ["service.sender"],
    "events": ["service.domain", "service.ingest"],
    "bodies": ["service.api"],
}


def main() -> None:
    name, seconds, *options = sys.argv[1:]
    assert name in HARNESSES, f"one of {', '.join(HARNESSES)}"
    with atheris.instrument_imports(include=HARNESSES[name]):
        harness = import_module(f"tests.fuzz.{name}")
    corpus = Path(".cache/fuzz") / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(harness.SEEDS):
        (corpus / f"seed-{number}").write_bytes(seed)
    arguments = [
        *(sys.argv[0], str(corpus), f"-max_total_time={seconds}", f"-artifact_prefix={corpus}-bug-", "-verbosity=0"),
        *("-max_len=4096", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"),
    ]
    atheris.Setup([*arguments, *options], harness.try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
