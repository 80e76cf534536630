"""Places machines on hypervisors whose name begins with what the operator sets, the emptiest first.

wit/policy.wit describes all facts; `componentize-py bindings` writes them as Python into wit_world.
"""

import json

import wit_world
import wit_world.exports
from componentize_py_types import Err
from wit_world.exports.host_selection import Placement, Ranking
from wit_world.imports.types import Info, PolicyError_InvalidSettings

SCHEMA = {
    "properties": {"prefix": {"type": "string", "description": "how the names of preferred hypervisors begin"}},
    "additionalProperties": False,
}


def read(text):
    """The operator's settings. What is raised is shown to the operator."""
    settings = json.loads(text)
    for field in settings:
        if field not in SCHEMA["properties"]:
            raise Err(PolicyError_InvalidSettings(f"there is no setting {field}"))
    prefix = settings.get("prefix", "")
    if not isinstance(prefix, str):
        raise Err(PolicyError_InvalidSettings("prefix must be a text, such as rack"))
    return prefix


def memory_share(candidate):
    """The part of the memory given to machines that may still be given, 0 to 1."""
    available = candidate.available.memory_bytes
    taken = max(candidate.used.memory_bytes, candidate.committed.memory_bytes) + candidate.in_flight.memory_bytes
    return available / (available + taken) if available + taken else 0.0


class WitWorld(wit_world.WitWorld):
    def describe(self):
        description = "hypervisors whose name has a prefix, the emptiest first"
        return Info("my-policy", "1.0.0", description, json.dumps(SCHEMA))

    def check_settings(self, settings):
        read(settings)


class HostSelection(wit_world.exports.HostSelection):
    def rank(self, context, request, candidates):
        prefix = read(context.settings)
        placements = []
        for index, candidate in enumerate(candidates):
            # It is listed for context, and must not be ranked.
            if candidate.ineligible is not None:
                continue
            preferred = candidate.hypervisor.id.name.startswith(prefix)
            score = (0.5 if preferred else 0.0) + memory_share(candidate) / 2
            placements.append(Placement(index, score, f"preferred: {str(preferred).lower()}"))
        return Ranking(placements, [], None)
