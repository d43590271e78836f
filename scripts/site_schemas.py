"""JSON schemas of the files that others read and write, out of the code that reads them."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, NamedTuple, get_type_hints

from host.emulation.scenario import Scenario
from host.manifest import Manifest
from host.options import DeployOptions
from host.options.setting import key_of, setting_of
from host.records.record import RecordLine
from sdk.cli.forms import FORMS
from sdk.report.sides import DeployFigures

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_GATES = "gates"
_TEXT: dict[str, Any] = {"type": ["string", "number"]}
_TEXTS: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_LIST: dict[str, Any] = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_TITLE = """# JSON schemas

For editors, and for programs that read or write these files. The schemas are made from the code that reads
the files, in the dialect 2020-12. A reader also checks what a schema cannot say, such as hashes and what fits
what.

"""


class Schema(NamedTuple):
    """A schema and what it is of."""

    name: str
    title: str
    about: str
    content: dict[str, Any]


def schemas() -> list[Schema]:
    """All of them, in the order of the page."""
    return [
        Schema(
            "project",
            "edgetlm.toml",
            "A [project file](../project.md): the options of a deployment and its gates.",
            project_schema(),
        ),
        Schema(
            "manifest",
            "manifest.json",
            "What a [bundle](formats.md#bundle) holds. Readers ignore fields that they do not know.",
            Manifest.model_json_schema(),
        ),
        Schema(
            "deploy",
            "Figures of a deployment",
            "What `sdk deploy --json` writes, as far as [`sdk report compare`](../reports.md) reads it.",
            DeployFigures.model_json_schema(),
        ),
        Schema(
            "record",
            "A record",
            "A line of a file that `sdk records export` writes: see [records](../records.md).",
            RecordLine.model_json_schema(by_alias=True),
        ),
        Schema(
            "replay",
            "A simulated board",
            "The file of a [replayed board](../replay.md). Unknown fields are errors.",
            Scenario.model_json_schema(by_alias=True),
        ),
    ]


def schema_file(schema: Schema) -> str:
    """The file of a schema."""
    return json.dumps({"$schema": _DIALECT, **schema.content}, indent=1) + "\n"


def schema_page() -> str:
    """The page in Markdown, which leads to the files."""
    parts = [_TITLE]
    for schema in schemas():
        file = f"schemas/{schema.name}.json"
        parts.append(f"## {schema.title}\n\n{schema.about} [{file}]({file})\n\n{_table(schema.content)}\n")
    return "\n".join(parts)


def project_schema() -> dict[str, Any]:
    """The keys of `edgetlm.toml`, out of the options that a deployment declares."""
    keys = [one for one in fields(DeployOptions) if one.name == "model" or setting_of(one).commands]
    plain = {key_of(one): _key(one) for one in keys if setting_of(one).group != _GATES}
    gates = {key_of(one): _key(one) for one in keys if setting_of(one).group == _GATES}
    table = {"type": "object", "properties": gates, "additionalProperties": False}
    return {
        "title": "edgetlm.toml",
        "type": "object",
        "properties": {**plain, _GATES: {"description": "Limits of the deployment.", **table}},
        "additionalProperties": False,
    }


def _key(option: Any) -> dict[str, Any]:
    setting = setting_of(option)
    kind = FORMS[setting.form].kind if setting.form else get_type_hints(DeployOptions)[option.name]
    if kind == list[str] | None:
        found = _TEXTS
    elif kind in (bool, int):
        found = {"type": "boolean" if kind is bool else "integer"}
    elif kind in (float, float | None):
        found = {"type": "number"}
    elif setting.form in ("lengths", "names"):
        found = _LIST
    else:
        found = {"enum": list(setting.choices)} if setting.choices else _TEXT
    return {"description": setting.text, **found}


def _table(schema: dict[str, Any]) -> str:
    needed = schema.get("required", [])
    lines = ["| field | type | needed |", "|---|---|---|"]
    for name, field in schema["properties"].items():
        lines.append(f"| `{name}` | {_type(field)} | {'yes' if name in needed else ''} |")
    return "\n".join(lines) + "\n"


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2]).removeprefix("_")
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(one) for one in field["anyOf"]))
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"] if one)
    if "const" in field:
        return f"`{field['const']}`"
    kind = field.get("type", "any")
    if kind == "array" and isinstance(field.get("items"), dict):
        return f"list of {_type(field['items'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
