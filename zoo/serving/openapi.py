"""The description of all endpoints, as OpenAPI and as a page, from their declarations."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from zoo.families.tasks import TaskOption
from zoo.io.page_text import html_text
from zoo.serving.endpoints import Endpoint
from zoo.serving.endpoints.tasks import RunRequest, served_options, served_tasks
from zoo.version import __version__

REFERENCE = "#/components/schemas/{name}"
TYPES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
RUN_PATH = "/run/{task}"
ERRORS = {
    "401": "The API key is missing or wrong.",
    "404": "The path or the model does not exist.",
    "413": "The body, a text or the number of texts is over a limit.",
    "429": "The server is busy; Retry-After says when to try again.",
}


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI description of endpoints; ``/run/TASK`` has a path for each task."""
    types = []
    for endpoint in endpoints:
        types += [endpoint.request, endpoint.response]
    types = [item for item in types if item not in (None, Any, dict)]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    schema_of = {repr(item): schema for item, schema in zip(types, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        request = schema_of.get(repr(endpoint.request), {"type": "object"})
        response = schema_of.get(repr(endpoint.response), {})
        if endpoint.path != RUN_PATH:
            operation = _operation(endpoint, endpoint.summary, request, response)
            path = endpoint.path.replace(":path}", "}")
            paths[path] = {endpoint.method.lower(): operation}
            continue
        for name, summary in served_tasks().items():
            task_request = _run_request(components, name)
            operation = _operation(endpoint, summary, task_request, response)
            paths[RUN_PATH.format(task=name)] = {endpoint.method.lower(): operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "zoo serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(
    endpoint: Endpoint, summary: str, request: dict[str, Any], response: dict[str, Any]
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": "The result.", "content": {"application/json": {"schema": response}}}
    }
    interface = endpoint.interface
    errors = {
        str(interface.invalid_status): "The request is not valid.",
        str(interface.failure_status): "The model has failed.",
        **ERRORS,
    }
    for status in sorted(errors):
        responses[status] = {"description": errors[status]}
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": [endpoint.interface.name],
        "responses": responses,
    }
    if endpoint.request is not None:
        content = {"application/json": {"schema": request}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _run_request(components: dict[str, Any], task: str) -> dict[str, Any]:
    """Return the schema of the body of ``/run/TASK``, with the options of a task."""
    schema = dict(components[RunRequest.__name__])
    properties = dict(schema["properties"])
    options = {}
    for name, option in served_options(task).items():
        options[name] = _option_schema(option)
    properties["options"] = {
        "type": "object",
        "properties": options,
        "additionalProperties": False,
    }
    schema["properties"] = properties
    return schema


def _option_schema(option: TaskOption) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": TYPES[option.type]}
    if option.choices:
        schema["enum"] = list(option.choices)
    if option.minimum is not None:
        schema["exclusiveMinimum" if option.exclusive else "minimum"] = option.minimum
    if option.maximum is not None:
        schema["exclusiveMaximum" if option.exclusive else "maximum"] = option.maximum
    if option.multiple:
        schema = {"type": "array", "items": schema}
    elif option.default is not None:
        schema["default"] = option.default
    schema["description"] = option.help
    return schema


def page(endpoints: Sequence[Endpoint]) -> str:
    """Return a page about all endpoints, which loads nothing from elsewhere."""
    description = describe(endpoints)
    components = description["components"]["schemas"]
    sections = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            rows = _field_rows(operation, components)
            table = ""
            if rows:
                head = "<tr><th>field</th><th>type</th><th>meaning</th></tr>"
                table = f"<table>{head}{''.join(rows)}</table>"
            sections.append(
                f"<h2><code>{method.upper()} {html_text(path)}</code></h2>"
                f"<p>{html_text(operation['summary'])}</p>{table}"
            )
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;"
        "color-scheme:light dark}table{border-collapse:collapse;width:100%}td,th{text-align:left;"
        "vertical-align:top;padding:.2em .6em .2em 0;border-bottom:1px solid #8884}"
        "h2{font-size:1em;margin:2em 0 0}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>zoo serve</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        f"{style}</style><h1>zoo serve {html_text(__version__)}</h1>"
        '<p>The same as OpenAPI: <a href="openapi.json">openapi.json</a>.</p>'
        f"{''.join(sections)}</html>"
    )


def _field_rows(operation: dict[str, Any], components: dict[str, Any]) -> Iterable[str]:
    """Return a row for each field of a body, and of the options of a task."""
    body = operation.get("requestBody")
    if body is None:
        return []
    schema = body["content"]["application/json"]["schema"]
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    meanings = _meanings(schema.get("description", ""))
    rows = []
    for name, field in schema.get("properties", {}).items():
        nested = field.get("properties") if name == "options" else None
        if nested:
            for option, value in nested.items():
                rows.append(_row(f"options.{option}", value, value["description"]))
        else:
            rows.append(_row(name, field, meanings.get(name, "")))
    return rows


def _row(name: str, field: dict[str, Any], meaning: str) -> str:
    types = field.get("type")
    if types is None:
        types = " or ".join(str(part.get("type", "object")) for part in field.get("anyOf", []))
    if "enum" in field:
        types = ", ".join(map(str, field["enum"]))
    return (
        f"<tr><td><code>{html_text(name)}</code></td><td>{html_text(str(types))}</td>"
        f"<td>{html_text(meaning)}</td></tr>"
    )


def _meanings(text: str) -> dict[str, str]:
    """Return attribute -> meaning, from the docstring of a record."""
    _, _, attributes = inspect.cleandoc(text).partition("Attributes:\n")
    meanings: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 4 and ":" in line:
            name, _, meaning = line.strip().partition(":")
            meanings[name] = meaning.strip()
        elif name and line.strip():
            meanings[name] += f" {line.strip()}"
    return meanings
