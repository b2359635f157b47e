"""The command line: one line per command; what a command does is imported when it is asked for."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from service import __version__

# name: (module, what it does). A module has ``add_arguments(parser)`` and ``run(arguments) -> exit status``.
COMMANDS = {
    "demo": ("service.tools.demo", "the whole main job on this machine, on embedded parts"),
    "serve": ("service.serving", "run the service"),
    "migrate": ("service.tools.migrate", "bring the database's schema up to date"),
    "listen": ("service.tools.listen", "a local receiver that verifies and shows what it gets"),
    "verify": ("service.tools.verify", "check a captured request and say which part is wrong"),
    "keys": ("service.tools.keys", "make, list and revoke API keys"),
    "dlq": ("service.tools.dlq", "list, show, replay and drop dead letters"),
    "secrets": ("service.tools.secrets", "encrypt stored secrets anew"),
    "tenants": ("service.tools.tenants", "erase a tenant"),
    "config": ("service.tools.config_table", "show every setting, its value and where it came from"),
}


def _end(*_: object) -> None:
    """End on SIGTERM also as PID 1, which has no default handler; ``serve`` puts its own in place of this one."""
    sys.exit(128 + signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    signal.signal(signal.SIGTERM, _end)
    parser = argparse.ArgumentParser(prog="webhookd", description="Tells receivers that extraction work is done.")
    parser.add_argument("--version", action="version", version=f"webhookd {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (_, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    chosen, rest = parser.parse_known_args(argv)
    module = import_module(COMMANDS[chosen.command][0])
    own = argparse.ArgumentParser(prog=f"webhookd {chosen.command}", description=COMMANDS[chosen.command][1])
    module.add_arguments(own)
    status: int = module.run(own.parse_args(rest))
    return status


if __name__ == "__main__":
    sys.exit(main())
