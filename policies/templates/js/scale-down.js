// Removes the Node first from which the fewest pods would have to move. Young Nodes stay.
//
// wit/policy.wit describes all facts. Its names are written here in camelCase; an option without a value is null.

import { log } from "kproxide:policy/log@0.1.0";

const schema = {
  properties: {
    minimumAgeSeconds: { type: "integer", minimum: 0, description: "Nodes younger than this stay" },
  },
  additionalProperties: false,
};

export function describe() {
  return {
    name: "my-policy",
    version: "1.0.0",
    description: "the Node with the fewest pods to move goes first; young Nodes stay",
    settingsSchema: JSON.stringify(schema),
  };
}

export const checkSettings = answer((text) => {
  read(text);
});

export const scaleDown = {
  order: answer((context, pool, nodes, hypervisors, maxRemovals) => {
    const { minimumAgeSeconds } = read(context.settings);
    const removals = [];
    nodes.forEach((node, index) => {
      if (context.now - node.created < minimumAgeSeconds) return;
      const score = 1 / (1 + node.movablePods);
      removals.push({ index, score, reason: `pods to move: ${node.movablePods}` });
    });
    return { removals, state: null };
  }),
};

// The operator's settings. What is thrown is shown to the operator.
function read(text) {
  const settings = JSON.parse(text);
  for (const field of Object.keys(settings)) {
    if (!(field in schema.properties)) throw invalid(`there is no setting ${field}`);
  }
  const { minimumAgeSeconds = 0 } = settings;
  if (!Number.isSafeInteger(minimumAgeSeconds) || minimumAgeSeconds < 0) {
    throw invalid("minimumAgeSeconds must be a whole number, such as 600");
  }
  return { minimumAgeSeconds };
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
