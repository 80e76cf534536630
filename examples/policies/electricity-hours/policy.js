// In hours of dear electricity, machines go where they draw the least power; or nowhere, above a price of your choice.
// In cheap hours they go to the emptiest hypervisor.
//
// wit/policy.wit describes all facts. Its names are written here in camelCase; an option without a value is null.

import { log } from "kproxide:policy/log@0.1.0";

const schema = {
  properties: {
    prices: {
      type: "array",
      description: "the hours of a day with their price: {from: '17:00', to: '21:00', price: 0.42}. An hour in none has 0",
    },
    utcOffset: { type: "string", description: "of your winter time, such as '+01:00'; default +00:00" },
    summerTime: { enum: ["none", "eu", "us"], description: "whose rule for summer time holds; default none" },
    dearFrom: { type: "number", description: "from this price on electricity is dear" },
    waitFrom: { type: "number", description: "from this price on no machine is made; without it always" },
    attribute: { type: "string", description: "the attribute with the watts of a hypervisor; default power" },
  },
  required: ["prices", "dearFrom"],
  additionalProperties: false,
};

export function describe() {
  return {
    name: "electricity-hours",
    version: "1.0.0",
    description: "the least power in hours of dear electricity, the emptiest hypervisor in cheap ones",
    settingsSchema: JSON.stringify(schema),
  };
}

export const checkSettings = answer((text) => {
  read(text);
});

export const hostSelection = {
  rank: answer((context, request, candidates) => {
    const settings = read(context.settings);
    const time = clock(context.now, settings);
    const price = priceAt(time.minute, settings.prices);
    const now = `${time.text} electricity costs ${price}`;
    if (settings.waitFrom !== undefined && price >= settings.waitFrom) {
      throw { tag: "no-candidate", val: `at ${now}: no machine is made from ${settings.waitFrom} on` };
    }
    const dear = price >= settings.dearFrom;
    const placements = [];
    candidates.forEach((candidate, index) => {
      if (candidate.ineligible !== null) return;
      const watts = power(candidate, settings.attribute);
      // Of 0 W the score is 1, of 1000 W a half. What nobody knows is taken for much.
      const score = dear ? (watts === null ? 0 : 1000 / (1000 + watts)) : memoryShare(candidate);
      const why = dear ? `dear: it draws ${watts === null ? "an unknown power" : `${watts} W`}` : "cheap: by free memory";
      placements.push({ index, score, reason: `at ${now}, ${why}` });
    });
    return { placements, rejected: [], state: null };
  }),
};

function power(candidate, attribute) {
  const found = candidate.hypervisor.attributes.find(({ key }) => key === attribute);
  const watts = found === undefined ? NaN : Number(found.value.val);
  return Number.isFinite(watts) && watts >= 0 ? watts : null;
}

// The part of the memory given to machines that may still be given, 0 to 1.
function memoryShare(candidate) {
  const available = candidate.available.memoryBytes;
  const taken =
    Math.max(candidate.used.memoryBytes, candidate.committed.memoryBytes) + candidate.inFlight.memoryBytes;
  return available + taken === 0 ? 0 : available / (available + taken);
}

// Minutes since midnight where the operator lives, and the same as text.
function clock(seconds, { offset, summerTime }) {
  const local = seconds + 60 * offset + (isSummer(seconds, offset, summerTime) ? 3600 : 0);
  const minute = Math.floor(local / 60) % (24 * 60);
  return { minute, text: written(minute) };
}

function written(minute) {
  const two = (number) => String(number).padStart(2, "0");
  return `${two(Math.floor(minute / 60))}:${two(minute % 60)}`;
}

// The European Union changes at 01:00 UTC, the United States at 02:00 of local time.
function isSummer(seconds, offset, rule) {
  const year = new Date(seconds * 1000).getUTCFullYear();
  if (rule === "eu") {
    // The last Sunday of March and of October: a week before the first of the next month.
    const change = (month) => sunday(year, month + 1, 1) - 7 * 86400 + 3600;
    return seconds >= change(2) && seconds < change(9);
  }
  if (rule === "us") {
    const winter = 7200 - 60 * offset;
    return seconds >= sunday(year, 2, 8) + winter && seconds < sunday(year, 10, 1) + winter - 3600;
  }
  return false;
}

// The first Sunday of a month (0 is January) on or after a day, at 00:00 UTC.
function sunday(year, month, day) {
  const date = new Date(Date.UTC(year, month, day));
  return date.getTime() / 1000 + ((7 - date.getUTCDay()) % 7) * 86400;
}

function priceAt(minute, prices) {
  const holds = ({ from, to }) => (from <= to ? from <= minute && minute < to : minute >= from || minute < to);
  return prices.find(holds)?.price ?? 0;
}

// The operator's settings. What is thrown is shown to the operator.
function read(text) {
  const settings = JSON.parse(text);
  for (const field of Object.keys(settings)) {
    if (!(field in schema.properties)) throw invalid(`there is no setting ${field}`);
  }
  const { prices, utcOffset = "+00:00", summerTime = "none", dearFrom, waitFrom, attribute = "power" } = settings;
  if (!Array.isArray(prices)) throw invalid("prices must be a list of {from: '17:00', to: '21:00', price: 0.42}");
  const number = (value, field) => {
    if (typeof value !== "number") throw invalid(`${field} must be a number, such as 0.42`);
    return value;
  };
  const sign = /^([+-])(.*)$/.exec(utcOffset);
  if (sign === null) throw invalid("utcOffset must be a text such as +01:00");
  if (!schema.properties.summerTime.enum.includes(summerTime)) throw invalid("summerTime must be none, eu or us");
  return {
    prices: prices.map((row, index) => ({
      from: minutes(row?.from, `prices[${index}].from`),
      to: minutes(row?.to, `prices[${index}].to`),
      price: number(row?.price, `prices[${index}].price`),
    })),
    offset: (sign[1] === "-" ? -1 : 1) * minutes(sign[2], "utcOffset"),
    summerTime,
    dearFrom: number(dearFrom, "dearFrom"),
    waitFrom: waitFrom === undefined ? undefined : number(waitFrom, "waitFrom"),
    attribute,
  };
}

function minutes(text, field) {
  const parts = /^([01]?\d|2[0-4]):([0-5]\d)$/.exec(text);
  if (parts === null) throw invalid(`${field} must be a time such as '17:00'`);
  return 60 * Number(parts[1]) + Number(parts[2]);
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
