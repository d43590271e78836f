"""`sdk devices emulate`: a device for who has no board."""

from __future__ import annotations

from typing import Annotated

import typer

from sdk.cli.options import Verbose


def emulate(
    architecture: Annotated[str, typer.Argument(metavar="aarch64|riscv64", help="Its processor.")],
    name: Annotated[str, typer.Option("--name", help="Name to give it.")] = "",
    board: Annotated[str, typer.Option("--board", help="Kind of board that it is to be.")] = "",
    vector_bits: Annotated[
        int, typer.Option("--vector-bits", metavar="128|256|512", help="Length of RISC-V vectors.")
    ] = 256,
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Word for a group of devices. May repeat."),
    ] = None,
    vm: Annotated[bool, typer.Option("--vm", help="A whole machine with an SSH server.")] = False,
    bare: Annotated[
        bool, typer.Option("--bare", help="With --vm: only start it, and say how it is added.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Make a device out of an emulator: right or wrong as on a board, but time says nothing of one."""
    from sdk.cli.console import print_line
    from sdk.cli.terminal import ConsoleProgress
    from sdk.management import emulation

    request = emulation.EmulateRequest(architecture, name, board, vector_bits, tuple(tags or ()))
    with ConsoleProgress() as progress:
        if bare and vm:
            machine = emulation.start_machine(request, progress)
        elif vm:
            machine, _ = emulation.emulate_machine(request, progress)
        else:
            entry = emulation.emulate(request, progress)
    if not vm:
        print_line(f"{entry.name} is an emulated {entry.board}; next: sdk deploy MODEL --device {entry.name}")
        return
    given = request.machine_name
    if bare:
        address = f"{machine.user}@127.0.0.1:{machine.port}"
        print_line("a machine without an agent; next:")
        print_line(
            f"sdk devices add {given} --host {address} --identity {machine.identity}"
            f" --known-hosts {machine.known_hosts}"
        )
        return
    print_line(f"{given} runs; everything installed on it is lost when it stops: sdk devices remove {given}")
    print_line(f"next: sdk deploy MODEL --device {given}")
