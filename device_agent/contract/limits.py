"""The bounds of every protocol, out of `limits.json`, which the native executor's build reads too."""

from __future__ import annotations

import json
import os
from typing import Dict, NamedTuple


class JsonLimits(NamedTuple):
    """Of any JSON text.

    Attributes:
        depth: of nested arrays and objects.
    """

    depth: int


class TextLimits(NamedTuple):
    """Of text from elsewhere.

    Attributes:
        shown_characters: of one text in a message, a table or a log.
    """

    shown_characters: int


class WireLimits(NamedTuple):
    """Of the protocol between the host and the agent.

    Attributes:
        header_bytes: of a reply's header.
        request_bytes: of a request's header.
        hello_bytes: of the first request's header, whose sender is not known yet.
        file_bytes: of an upload.
        blob_bytes: of the tensors of one frame; never more than the machine's memory.
        text_characters: of a text, such as a path.
        name_characters: of a name.
        message_characters: of an error's message.
        files: that one request names.
        tensors: of one frame.
        rank: dimensions of a tensor.
        dimension: size of one.
        items: values in a reply.
        threads: of a session.
        seconds: of a time limit, or of waiting.
        runs: runs, repeats or windows that a request asks for.
        clients: that an agent serves at once, where it may open enough files.
        pending_connections: connections that have not sent their first request.
        hello_s: seconds that a connection has for it.
        status_line_bytes: of one line that an executor reports to the daemon.
        status_bytes_per_s: of all lines that an executor reports.
        meter_line_bytes: of one line of the process that reads sensors.
        rpc_key_bytes: of the key that a client of TVM's RPC sends first.
        intermediate_bytes: of intermediate results in one reply, where a request names no limit.
    """

    header_bytes: int
    request_bytes: int
    hello_bytes: int
    file_bytes: int
    blob_bytes: int
    text_characters: int
    name_characters: int
    message_characters: int
    files: int
    tensors: int
    rank: int
    dimension: int
    items: int
    threads: int
    seconds: int
    runs: int
    clients: int
    pending_connections: int
    hello_s: int
    status_line_bytes: int
    status_bytes_per_s: int
    meter_line_bytes: int
    rpc_key_bytes: int
    intermediate_bytes: int


class BundleLimits(NamedTuple):
    """Of a bundle.

    Attributes:
        manifest_bytes: of `manifest.json`.
        signature_bytes: of `manifest.sig`.
        files: number of them.
        file_bytes: of one file.
        total_bytes: of all files.
        name_characters: of the name of a bundle or a file.
        tensors: inputs, and outputs.
        rank: dimensions of a tensor.
        dimension: size of one.
        tensor_bytes: of one tensor.
        parameters: number of them.
        threads: that a model may ask for.
        alignment: of each parameter in `params.bin`, in bytes.
        trust_bytes: of the file of trusted keys.
        trust_entries: keys in it, and revocations.
        signer_characters: of the name of a signer or a key.
        verified_bytes: of a file of the memory of verified files.
        verified_files: bundles in that memory.
        unpacked_bytes: that a zip may always unpack to.
        unpacked_ratio: bytes that a zip may unpack to beyond that, by byte of the zip.
        state_bytes: of all tensors that a model keeps between calls.
        context: tokens that a language model's state has places for.
        vocabulary: tokens that a language model knows.
        end_tokens: tokens that end a text.
        verified_tokens: that a language model verifies in one call.
        sequences: texts that a language model continues in one call.
    """

    manifest_bytes: int
    signature_bytes: int
    files: int
    file_bytes: int
    total_bytes: int
    name_characters: int
    tensors: int
    rank: int
    dimension: int
    tensor_bytes: int
    parameters: int
    threads: int
    alignment: int
    trust_bytes: int
    trust_entries: int
    signer_characters: int
    verified_bytes: int
    verified_files: int
    unpacked_bytes: int
    unpacked_ratio: int
    state_bytes: int
    context: int
    vocabulary: int
    end_tokens: int
    verified_tokens: int
    sequences: int


class SshLimits(NamedTuple):
    """Of what a board answers over SSH.

    Attributes:
        stdout_bytes: of a command's output.
        stderr_bytes: of a command's messages.
        packet_bytes: of one packet.
        banner_bytes: of the lines that a server sends before the protocol begins.
        backlog_bytes: of a channel's data that nobody has read yet; more than the window that is granted.
        path_characters: of a path on a board.
        entries: of a list in an answer.
    """

    stdout_bytes: int
    stderr_bytes: int
    packet_bytes: int
    banner_bytes: int
    backlog_bytes: int
    path_characters: int
    entries: int


class RecordLimits(NamedTuple):
    """Of a record of a measurement.

    Attributes:
        line_bytes: of its line of JSON.
        row_bytes: of a row of a database.
        batch_bytes: of rows that are in memory at a time.
        file_lines: of a file that is imported.
        shortest_s: least time of one call; no processor does anything that is measured in less.
        longest_s: longest time of one call.
        times: number of them.
        energy_j: of one call.
        threads: of the measurement.
        decisions: of a candidate.
        decision_values: numbers of one decision.
        decision_value: largest of them, with either sign.
        text_characters: of a text field such as the command or the reason of a failure.
        name_characters: of a name such as that of a rule, a proposer or a decision.
        ahead_s: how far its date may lie in the future, as clocks differ.
    """

    line_bytes: int
    row_bytes: int
    batch_bytes: int
    file_lines: int
    shortest_s: float
    longest_s: float
    times: int
    energy_j: float
    threads: int
    decisions: int
    decision_values: int
    decision_value: int
    text_characters: int
    name_characters: int
    ahead_s: float


class ModelLimits(NamedTuple):
    """Of a model file.

    Attributes:
        program_bytes: of the program of a `torch.export` archive, which is JSON.
        directory_bytes: of the directory of an archive.
        pickle_bytes: of one pickled tensor, or of all weights of an old archive.
        nodes: of a graph, with those of its inner graphs, functions called and loops unrolled.
        name_characters: of the name of a value.
        rank: dimensions of a tensor.
        dimension: size of one.
        elements: of a tensor.
        computed_elements: of a tensor that a small file makes out of nothing: a fill, a range, a repetition.
        graph_depth: of graphs within graphs, and of functions that call functions.
        interface: inputs, and outputs.
        weight_files: files beside the model that hold its weights.
    """

    program_bytes: int
    directory_bytes: int
    pickle_bytes: int
    nodes: int
    name_characters: int
    rank: int
    dimension: int
    elements: int
    computed_elements: int
    graph_depth: int
    interface: int
    weight_files: int


class Limits(NamedTuple):
    """All of them, a field a section of the file.

    Attributes:
        item_bytes: size of one element of each type that a tensor may have.
    """

    json: JsonLimits
    text: TextLimits
    wire: WireLimits
    bundle: BundleLimits
    model: ModelLimits
    ssh: SshLimits
    records: RecordLimits
    item_bytes: Dict[str, int]


def _read() -> Limits:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "limits.json")
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    sections = {
        "json": JsonLimits,
        "text": TextLimits,
        "wire": WireLimits,
        "bundle": BundleLimits,
        "model": ModelLimits,
        "ssh": SshLimits,
        "records": RecordLimits,
    }
    bounds = {name: section(**data[name]) for name, section in sections.items()}
    return Limits(item_bytes=data["item_bytes"], **bounds)


LIMITS = _read()
