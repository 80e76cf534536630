"""Removes the Node first from which the fewest pods would have to move. Young Nodes stay.

wit/policy.wit describes all facts; `componentize-py bindings` writes them as Python into wit_world.
"""

import json

import wit_world
import wit_world.exports
from componentize_py_types import Err
from wit_world.exports.scale_down import Plan, Removal
from wit_world.imports.types import Info, PolicyError_InvalidSettings

SCHEMA = {
    "properties": {
        "minimumAgeSeconds": {"type": "integer", "minimum": 0, "description": "Nodes younger than this stay"}
    },
    "additionalProperties": False,
}


def read(text):
    """The operator's settings. What is raised is shown to the operator."""
    settings = json.loads(text)
    for field in settings:
        if field not in SCHEMA["properties"]:
            raise Err(PolicyError_InvalidSettings(f"there is no setting {field}"))
    age = settings.get("minimumAgeSeconds", 0)
    if type(age) is not int or age < 0:
        raise Err(PolicyError_InvalidSettings("minimumAgeSeconds must be a whole number, such as 600"))
    return age


class WitWorld(wit_world.WitWorld):
    def describe(self):
        description = "the Node with the fewest pods to move goes first; young Nodes stay"
        return Info("my-policy", "1.0.0", description, json.dumps(SCHEMA))

    def check_settings(self, settings):
        read(settings)


class ScaleDown(wit_world.exports.ScaleDown):
    def order(self, context, pool, nodes, hypervisors, max_removals):
        minimum_age = read(context.settings)
        removals = []
        for index, node in enumerate(nodes):
            if context.now - node.created < minimum_age:
                continue
            score = 1 / (1 + node.movable_pods)
            removals.append(Removal(index, score, f"pods to move: {node.movable_pods}"))
        return Plan(removals, None)
