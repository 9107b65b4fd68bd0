"""Hooks of MkDocs: write the reference from the code, bring the pages outside of docs/ into the site, and check public names.

A page asks for a generated part by a line such as `<!-- generated: commands -->`.
"""

import inspect
import os
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import griffe
import msgspec
import typer
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import pbodl
from pbodl.cli import app
from pbodl.data.schema import Field, Schema
from pbodl.models.contract import Model
from pbodl.models.spec import FieldPrior, Prior
from pbodl.serving.web import openapi
from pbodl.serving.web.server_limits import Limits
from pbodl.training.config import DEFAULT_KIND, DEFAULT_NETWORK, FROM_TRAINING, TrainingSpec

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Pages of the repository that are part of the site.
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
OUTSIDE |= {"benchmarks/README.md": "lab/speed.md"}
COLUMN = re.compile(r"(\w+(?:, \w+)*)\s{2,}(\S.*)")
EXAMPLE = Schema(
    label="click",
    time="time",
    fields=[
        Field("user_id", group="user"),
        Field("interests", group="user", kind="multi"),
        Field("site", group="context"),
        Field("ad_id", group="ad"),
        Field("price", group="ad", kind="number"),
    ],
)


def columns(docstring: str | None) -> dict[str, str]:
    """The names that a docstring explains in two columns, with their explanations."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(docstring or "").splitlines():
        row = COLUMN.fullmatch(line)
        if row:
            names = row[1].split(", ")
            found |= dict.fromkeys(names, row[2])
        elif names and line.startswith("    "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found


def explanations(thing: Any) -> dict[str, str]:
    """What the docstring of a public name explains, and those of the names that it refers to for its parameters."""
    docstring = inspect.getdoc(thing) or ""
    found: dict[str, str] = {}
    for other in re.findall(r"(?:as for|those of|: as) `(\w+)`", " ".join(docstring.split())):
        if other in pbodl.__all__ and getattr(pbodl, other) is not thing:
            found |= explanations(getattr(pbodl, other))
    return found | columns(docstring)


def undocumented() -> list[str]:
    """Public names without a docstring, and their parameters without an explanation."""
    missing = []
    for name in pbodl.__all__:
        thing = getattr(pbodl, name)
        if not callable(thing):
            continue
        if not inspect.getdoc(thing):
            missing.append(f"pbodl.{name}")
        elif not (isinstance(thing, type) and issubclass(thing, Exception)):
            known = explanations(thing)
            missing += [f"pbodl.{name}({parameter})" for parameter in inspect.signature(thing).parameters if parameter not in known]
    return missing


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines) + "\n"
    )


def commands() -> str:
    """Every command with its arguments and options."""
    parts = []
    for name, command in _walk(typer.main.get_command(app), "pbodl"):
        usage = " ".join(command.collect_usage_pieces(click.Context(command)))
        parts.append(f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n\n```text\n{name} {usage}\n```\n")
        rows = [[_option(p), getattr(p, "help", None) or "", _default(p)] for p in command.params if p.name != "help"]
        for row in rows:
            if not row[1]:
                raise PluginError(f"`{name}` has no help for {row[0]}")
        parts.append(_table(["option", "meaning", "default"], rows) if rows else "")
        if getattr(command, "epilog", None):
            parts.append(re.sub(r"(?s)^Example: (.*)", r"Example: `\1`", str(command.epilog).strip()) + "\n")
    return "\n".join(parts)


def _walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not getattr(command, "commands", None):
        yield name, command
        return
    for child, inner in command.commands.items():
        yield from _walk(inner, f"{name} {child}")


def _option(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name or '').upper()}`"
    return ", ".join(f"`{flag}`" for flag in parameter.opts)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    return "" if default is None or default is False or default == [] or callable(default) else f"`{default}`"


def configuration() -> str:
    """Every key of the configuration, from the structures that read it."""
    parts = ["## [schema]\n", _keys(Schema, columns(Schema.__doc__))]
    parts += ["## [[schema.fields]]\n", "One table for each column to learn from.\n", _keys(Field, columns(Field.__doc__))]
    default = f"default `{DEFAULT_KIND}`; `{DEFAULT_NETWORK}` if a key of hidden layers is given"
    parts += ["## [model]\n", f"`kind` names the model ({default}). The other keys depend on it.\n"]
    specs: dict[type, list[str]] = {}
    for kind, model in Model.kinds.items():
        if model.__module__.startswith("pbodl."):
            specs.setdefault(model.Spec, []).append(kind)
    for spec, kinds in specs.items():
        known = explanations(Model.kinds[kinds[-1]]) | explanations(Model.kinds[kinds[0]])
        parts += [f"### {', '.join(kinds)}\n", _keys(spec, known, FROM_TRAINING)]
    parts += ["### [model.prior]\n", _keys(Prior, columns(Prior.__doc__))]
    parts += ["### [model.prior.fields.NAME]\n", _keys(FieldPrior, columns(FieldPrior.__doc__))]
    parts += ["## [training]\n", _keys(TrainingSpec, columns(TrainingSpec.__doc__))]
    return "\n".join(parts)


def _keys(struct: type[msgspec.Struct], known: dict[str, str], without: tuple[str, ...] = ()) -> str:
    rows = []
    for field in msgspec.structs.fields(struct):
        if field.name in without:
            continue
        if field.name not in known:
            raise PluginError(f"the key {field.name!r} of {struct.__name__} is not documented")
        rows.append([f"`{field.name}`", _type(field.type), _default_of(field), known[field.name]])
    return _table(["key", "type", "default", "meaning"], rows)


def _type(kind: Any) -> str:
    if isinstance(kind, types.UnionType):
        return " or ".join(_type(part) for part in kind.__args__ if part is not type(None))
    names = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Prior": "table", "dict": "table"}
    name = getattr(getattr(kind, "__origin__", kind), "__name__", str(kind))
    return names.get(name, "list")


def _default_of(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is msgspec.NODEFAULT or value is None or isinstance(value, Prior):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value!r}`".replace("'", '"').replace("(", "[").replace(")", "]")


def python() -> str:
    """The public names, one section each."""
    order = sorted(pbodl.__all__, key=lambda name: (not name[0].isupper(), name.lower()))
    return "\n".join(f"::: pbodl.{name}\n" for name in order if callable(getattr(pbodl, name)))


def http() -> str:
    """The paths of the server, its messages and errors, from its OpenAPI document."""
    described = openapi.document(EXAMPLE, Limits(), token=False)
    parts = []
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts.append(f"## {method.upper()} {path}\n\n{operation['summary']}.\n\n{operation.get('description', '')}\n")
            answers = [[status, answer["description"]] for status, answer in operation["responses"].items()]
            parts.append(_table(["status", "meaning"], answers))
    parts.append("## Messages\n\nThe types of requests and answers.\n")
    for name, schema in described["components"]["schemas"].items():
        if "properties" in schema:
            needed = schema.get("required", [])
            rows = [[f"`{key}`", _json_type(value), "yes" if key in needed else ""] for key, value in schema["properties"].items()]
            parts.append(f"### {name}\n\n{schema.get('description', '')}\n\n{_table(['key', 'type', 'required'], rows)}")
    return "\n".join(parts)


def _json_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_json_type(part) for part in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    return f"list of {_json_type(schema['items'])}" if kind == "array" and schema.get("items") else str(kind)


GENERATED = {"commands": commands, "configuration": configuration, "python": python, "http": http}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside of docs/."""
    missing = undocumented()
    if missing:
        raise PluginError(f"these public names and parameters have no explanation in a docstring: {', '.join(missing)}")
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Fill in what is generated, and let links out of docs/ lead to the pages of the site."""
    uri = page.file.src_uri
    source = next((name for name, target in OUTSIDE.items() if target == uri), f"docs/{uri}")
    markdown = re.sub(r"<!-- generated: (\w+) -->", lambda match: GENERATED[match[1]](), markdown)
    markdown = re.sub(r"<!-- not run: .* -->\n", "", markdown)
    return re.sub(r"(!?\[[^\[\]]*\]|\])\(([^()\s#]+)(#[^()\s]*)?\)", lambda match: _link(match, source, uri), markdown)


def _link(match: re.Match[str], source: str, uri: str) -> str:
    label, target, anchor = match[1], match[2], match[3] or ""
    if "://" in target or target.startswith("mailto:"):
        return match[0]
    path = (ROOT / source).parent / target
    if not path.exists():
        return match[0]  # MkDocs reports it
    name = os.path.relpath(path.resolve(), ROOT).replace(os.sep, "/")
    if name in OUTSIDE:
        inside = OUTSIDE[name]
    elif name.startswith("docs/") and path.is_file():
        inside = name.removeprefix("docs/")
    elif label.startswith("["):
        return label[1:-1]  # source code is not part of the site: its name alone
    else:
        return match[0]
    return f"{label}({os.path.relpath(inside, Path(uri).parent).replace(os.sep, '/')}{anchor})"


class Columns(griffe.Extension):
    """Shows the two columns of a docstring as a list, since Markdown would run them together."""

    def on_instance(self, *, obj: griffe.Object, **options: Any) -> None:
        if obj.docstring is None:
            return
        lines: list[str] = []
        within = False
        for line in obj.docstring.value.splitlines():
            row = COLUMN.fullmatch(line)
            if row:
                lines += [] if within else [""]
                lines.append("- " + ", ".join(f"`{name}`" for name in row[1].split(", ")) + f": {row[2]}")
                within = True
            elif within and line.startswith("    "):
                lines[-1] += " " + line.strip()
            elif re.fullmatch(r"-{3,}", line):  # the line under `Parameters`
                lines[-1] = f"**{lines[-1]}**"
                lines.append("")
            else:
                lines += ["", line] if within and line else [line]
                within = False
        obj.docstring.value = "\n".join(lines)
