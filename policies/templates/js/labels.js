// Gives each Node a label with the name of its hypervisor.
//
// wit/policy.wit describes all facts. Its names are written here in camelCase; an option without a value is null.

import { log } from "kproxide:policy/log@0.1.0";

const schema = {
  properties: { key: { type: "string", description: "the key of the label" } },
  additionalProperties: false,
};

export function describe() {
  return {
    name: "my-policy",
    version: "1.0.0",
    description: "a label with the name of the hypervisor",
    settingsSchema: JSON.stringify(schema),
  };
}

export const checkSettings = answer((text) => {
  read(text);
});

export const labels = {
  // One answer for each hypervisor, in their order.
  decorate: answer((settings, machine, hypervisors) => {
    const { key } = read(settings);
    return hypervisors.map((hypervisor) => ({
      labels: [[key, hypervisor.id.name]],
      annotations: [],
      taints: [],
    }));
  }),
};

// The operator's settings. What is thrown is shown to the operator.
function read(text) {
  const settings = JSON.parse(text);
  for (const field of Object.keys(settings)) {
    if (!(field in schema.properties)) throw invalid(`there is no setting ${field}`);
  }
  const { key = "example.com/hypervisor" } = settings;
  if (typeof key !== "string") throw invalid("key must be a text, such as example.com/hypervisor");
  return { key };
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
