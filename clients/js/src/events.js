/** From JavaScript's values to the JSON of events. */

import { InvalidEvent } from "./errors.js";

/**
 * The JSON text of one event. A Date becomes a timestamp, and a member that is undefined is left out, as JSON does.
 * Throws InvalidEvent for what JSON would change without a word (NaN, infinity) or has no form for.
 */
export function encodeEvent(event) {
  if (event === null || typeof event !== "object" || Array.isArray(event) || event instanceof Date) {
    throw new InvalidEvent("an event is an object whose members are its attributes");
  }
  try {
    return JSON.stringify(event, encodeValue);
  } catch (error) {
    if (error instanceof InvalidEvent) throw error;
    throw new InvalidEvent(`the event has no JSON form: ${error.message}`, { cause: error });
  }
}

/** The body of a publication: an object for one event, an array for a batch. */
export function encodeEvents(events) {
  if (!Array.isArray(events)) return encodeEvent(events);
  if (events.length === 0) throw new InvalidEvent("there are no events in the batch");
  return `[${events.map(encodeEvent).join(",")}]`;
}

/** `JSON.stringify` calls this with the object as `this`, and with a Date that is a string already. */
function encodeValue(name, value) {
  const given = this[name];
  if (given instanceof Date) {
    if (value === null) throw new InvalidEvent(`attribute ${name} is an invalid Date`, { field: name });
    return { $timestamp: value };
  }
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new InvalidEvent(`attribute ${name} is ${value}, which JSON does not have`, { field: name });
  }
  if (["bigint", "function", "symbol"].includes(typeof value)) {
    throw new InvalidEvent(`attribute ${name} is a ${typeof value}, which JSON does not have`, { field: name });
  }
  return value;
}
