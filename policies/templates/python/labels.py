"""Gives each Node a label with the name of its hypervisor.

wit/policy.wit describes all facts; `componentize-py bindings` writes them as Python into wit_world.
"""

import json

import wit_world
import wit_world.exports
from componentize_py_types import Err
from wit_world.exports.labels import Decoration
from wit_world.imports.types import Info, PolicyError_InvalidSettings

SCHEMA = {
    "properties": {"key": {"type": "string", "description": "the key of the label"}},
    "additionalProperties": False,
}


def read(text):
    """The operator's settings. What is raised is shown to the operator."""
    settings = json.loads(text)
    for field in settings:
        if field not in SCHEMA["properties"]:
            raise Err(PolicyError_InvalidSettings(f"there is no setting {field}"))
    key = settings.get("key", "example.com/hypervisor")
    if not isinstance(key, str):
        raise Err(PolicyError_InvalidSettings("key must be a text, such as example.com/hypervisor"))
    return key


class WitWorld(wit_world.WitWorld):
    def describe(self):
        return Info("my-policy", "1.0.0", "a label with the name of the hypervisor", json.dumps(SCHEMA))

    def check_settings(self, settings):
        read(settings)


class Labels(wit_world.exports.Labels):
    def decorate(self, settings, machine, hypervisors):
        """One answer for each hypervisor, in their order."""
        key = read(settings)
        return [Decoration([(key, hypervisor.id.name)], [], []) for hypervisor in hypervisors]
