"""Console script `device-agent`: runs the agent of a device and gives hosts tickets for it."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import sys
from typing import List, Optional

from device_agent.contract.quiet import silence
from device_agent.errors import AgentError
from device_agent.store.agent_folder import AgentFolder, default_root


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs one command.

    Returns:
        0 after an orderly end, 1 where the command cannot be carried out, 2 for a wrong one.
    """
    options = _parser().parse_args(arguments)
    # Whatever is written below is for this user's eyes.
    os.umask(0o077)
    silence()
    try:
        return _run(options)
    except (OSError, AgentError) as error:
        print("device-agent: %s" % " ".join(str(error).split()), file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="device-agent", description="Runs and measures models on this device."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve hosts on the loopback interface")
    serve.add_argument("--port", type=int, default=0, help="port to listen on, 0 for any")
    serve.add_argument(
        "--token-file", help="file with the secret that hosts have to know, in place of tickets"
    )
    serve.add_argument("--store", help="folder of bundles and uploads, in place of the agent's folder")
    serve.add_argument("--parent-pid", type=int, default=0, help="end when this process has ended")
    serve.add_argument("--system-root", default="/", help="prefix of /proc and /sys, for tests")
    serve.add_argument("--idle-limit-s", type=float, default=0.0, help="end after so long without clients")
    serve.add_argument("--log", help="file for messages, by default stderr")
    ticket = commands.add_parser("ticket", help="let one connection in; starts the agent if need be")
    start = commands.add_parser("start", help="start the agent if need be")
    stop = commands.add_parser("stop", help="end the agent and its sessions")
    status = commands.add_parser("status", help="whether the agent runs and who uses it")
    unit = commands.add_parser("unit", help="print a unit of systemd that starts the agent")
    unit.add_argument(
        "--system", action="store_true", help="for the system, hardened; without it, for a user"
    )
    unit.add_argument("--user", help="who the system's unit runs as, by default this user")
    unit.add_argument("--power-modes", action="store_true", help="let the agent change power modes")
    keys = commands.add_parser("keys", help="whose bundles run here: list, trust KEY NAME, or revoke NAME")
    keys.add_argument("action", choices=("list", "trust", "revoke"))
    keys.add_argument("words", nargs="*", help="public key and name, or what is to be revoked")
    texts = commands.add_parser("generate", help="generate texts with a bundle, by requests on stdin")
    texts.add_argument("bundle", help="folder of the bundle")
    texts.add_argument("--trust", choices=("signed", "unsigned"), default="signed", help="in its signer")
    texts.add_argument("--keys", help="file of the trusted keys, by default this user's")
    texts.add_argument("--relayed", action="store_true", help="have calls of the model run elsewhere")
    record = commands.add_parser("record-sensors", help="record this board's sensors, to test against")
    record.add_argument("out", help="archive to write (.tar)")
    record.add_argument("--seconds", type=float, default=5.0, help="how long to follow the readings")
    record.add_argument("--system-root", default="/", help="prefix of /proc and /sys, for tests")
    figures = commands.add_parser("metrics", help="serve figures of this board for Prometheus")
    figures.add_argument("--port", type=int, default=9465, help="port to listen on, 0 for any")
    figures.add_argument("--listen", default="127.0.0.1", help="address to listen on, by default loopback")
    figures.add_argument("--system-root", default="/", help="prefix of /proc and /sys, for tests")
    for command in (serve, ticket, start, stop, status, unit, keys, texts, record, figures):
        command.add_argument("--home", help="the agent's folder (EDGETLM_HOME)")
    for command in (serve, ticket, start, unit):
        command.add_argument("--python", default=sys.executable, help="interpreter of the agent's processes")
    return parser


def _run(options: argparse.Namespace) -> int:
    home = AgentFolder(options.home or default_root())
    if options.command == "serve":
        return _serve(options, home)
    if options.command == "record-sensors":
        return _record_sensors(options)
    if options.command == "metrics":
        return _metrics(options, home)
    if options.command == "keys":
        return _keys(options, home)
    if options.command == "generate":
        # With the runtime of TVM, which no other command needs.
        from device_agent.text_service import serve

        return serve(options.bundle, options.trust, options.keys, home.board, relayed=options.relayed)
    from device_agent.serve import control

    if options.command == "ticket":
        print(json.dumps(control.ticket(home, options.python)))
    elif options.command == "start":
        record = control.start(home, options.python)
        print("running, process %d" % record["pid"])
    elif options.command == "stop":
        print("stopped" if control.stop(home) else "not running")
    elif options.command == "unit":
        print(_unit(options, home), end="")
    else:
        print("\n".join(control.status_lines(home)))
    return 0


def _metrics(options: argparse.Namespace, home: AgentFolder) -> int:
    from device_agent.contract.metrics import PAGE, MetricsServer
    from device_agent.serve.metrics import BoardMetrics

    try:
        server = MetricsServer(options.listen, options.port, BoardMetrics(home, options.system_root).collect)
    except (ValueError, OverflowError) as error:
        raise AgentError("bad_request", "metrics: %s; give an address and a port" % error) from error
    with server, contextlib.suppress(KeyboardInterrupt):
        print("http://%s:%d%s" % (options.listen, server.port, PAGE), flush=True)
        server.serve_forever()
    return 0


def _record_sensors(options: argparse.Namespace) -> int:
    from device_agent.power import recording

    about = recording.record(options.system_root, options.out, options.seconds)
    print(
        "%s: %d files of %s, %d unreadable"
        % (
            options.out,
            about["files"],
            about["model"] or "a machine without a device tree",
            about["unreadable"],
        )
    )
    return 0


def _keys(options: argparse.Namespace, home: AgentFolder) -> int:
    """Reads or changes the list of trusted keys, which needs no running agent."""
    from device_agent.contract.manifest import ContractError
    from device_agent.contract.trust import TrustStore
    from device_agent.store.opened_bundle import trust_file

    wanted = {"list": 0, "trust": 2, "revoke": 1}[options.action]
    if len(options.words) != wanted:
        raise AgentError("bad_request", "keys %s takes %d words; see --help" % (options.action, wanted))
    store = TrustStore(trust_file(home.device))
    try:
        if options.action == "trust":
            store.trust(*options.words)
        elif options.action == "revoke":
            store.revoke(*options.words)
        found = store.read()
    except ContractError as error:
        raise AgentError("bundle", str(error)) from error
    for key in found.keys:
        print("trusted  %s  %s, since %s" % key)
    for one in found.revoked:
        print("revoked  %s  %s, on %s" % one)
    return 0


def _unit(options: argparse.Namespace, home: AgentFolder) -> str:
    from device_agent.board.nvpmodel import NvpModel
    from device_agent.serve.systemd_unit import SystemdUnit

    return SystemdUnit(
        home=home.root,
        python=options.python,
        user=options.user or getpass.getuser(),
        system=options.system,
        power_modes=options.power_modes,
        nvpmodel=NvpModel("/", ()).present,
    ).text()


def _serve(options: argparse.Namespace, home: AgentFolder) -> int:
    from device_agent.serve.daemon import Daemon, Settings
    from device_agent.wire.shared_token import SharedToken

    token = None
    if options.token_file:
        with open(options.token_file, encoding="ascii") as file:
            token = SharedToken(file.read().strip())
        if token.empty:
            raise AgentError("bad_request", "%s holds no token" % options.token_file)
    elif options.store:
        raise AgentError("bad_request", "--store needs --token-file; tickets belong to a --home")
    settings = Settings(
        store_dir=os.path.abspath(options.store or home.device),
        home=None if options.token_file else home,
        system_root=options.system_root,
        port=options.port,
        parent_pid=options.parent_pid,
        python=options.python,
        idle_limit_s=options.idle_limit_s,
        log=options.log,
    )
    daemon = Daemon(settings, token)
    print(json.dumps({"port": daemon.port}), flush=True)
    return daemon.run()


if __name__ == "__main__":
    sys.exit(main())
