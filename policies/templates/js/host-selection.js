// Places machines on hypervisors whose name begins with what the operator sets, the emptiest first.
//
// wit/policy.wit describes all facts. Its names are written here in camelCase; an option without a value is null.

import { log } from "kproxide:policy/log@0.1.0";

const schema = {
  properties: { prefix: { type: "string", description: "how the names of preferred hypervisors begin" } },
  additionalProperties: false,
};

export function describe() {
  return {
    name: "my-policy",
    version: "1.0.0",
    description: "hypervisors whose name has a prefix, the emptiest first",
    settingsSchema: JSON.stringify(schema),
  };
}

export const checkSettings = answer((text) => {
  read(text);
});

export const hostSelection = {
  rank: answer((context, request, candidates) => {
    const { prefix } = read(context.settings);
    const placements = [];
    candidates.forEach((candidate, index) => {
      // It is listed for context, and must not be ranked.
      if (candidate.ineligible !== null) return;
      const preferred = candidate.hypervisor.id.name.startsWith(prefix);
      const score = (preferred ? 0.5 : 0) + memoryShare(candidate) / 2;
      placements.push({ index, score, reason: `preferred: ${preferred}` });
    });
    return { placements, rejected: [], state: null };
  }),
};

// The part of the memory given to machines that may still be given, 0 to 1.
function memoryShare(candidate) {
  const available = candidate.available.memoryBytes;
  const taken =
    Math.max(candidate.used.memoryBytes, candidate.committed.memoryBytes) + candidate.inFlight.memoryBytes;
  return available + taken === 0 ? 0 : available / (available + taken);
}

// The operator's settings. What is thrown is shown to the operator.
function read(text) {
  const settings = JSON.parse(text);
  for (const field of Object.keys(settings)) {
    if (!(field in schema.properties)) throw invalid(`there is no setting ${field}`);
  }
  const { prefix = "" } = settings;
  if (typeof prefix !== "string") throw invalid("prefix must be a text, such as rack");
  return { prefix };
}

function invalid(what) {
  return { tag: "invalid-settings", val: what };
}

// Without this, what goes wrong in the code would only be a crash: the log gets the place, and the operator the message.
function answer(question) {
  return (...facts) => {
    try {
      return question(...facts);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      log("error", `${error}\n${error.stack}`.slice(0, 1000));
      throw { tag: "internal", val: String(error) };
    }
  };
}
