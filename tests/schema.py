"""The schema of the JSON form, and a check that it describes all there is."""

from __future__ import annotations

import json
from importlib.resources import files as resources
from typing import Any

import jsonschema

SCHEMA = json.loads((resources("pytest_jaxcompile.report") / "schema.json").read_text())


def strict(schema: Any) -> Any:
    """The schema with no field allowed that it does not describe, but for notes."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(part) for name, part in schema.items()}
    if "properties" in made and "only_in" not in made["properties"]:
        made.setdefault("additionalProperties", False)
    return made


def check(data: Any) -> None:
    jsonschema.Draft202012Validator(strict(SCHEMA)).validate(data)
