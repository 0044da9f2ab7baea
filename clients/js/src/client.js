/** The client: publishing, subscribing, and its life. */

import { ClientClosed, InvalidRequest } from "./errors.js";
import { encodeEvents } from "./events.js";
import { Link, subscriptionPath } from "./link.js";
import { GroupSource, Source } from "./source.js";
import { Stream } from "./stream.js";

const DEFAULTS = {
  fetch: undefined,
  WebSocket: undefined,
  timeoutSeconds: 30,
  waitSeconds: 30,
  bufferCount: 10_000,
  bufferBytes: 64 * 1024 * 1024,
};
const GROUP_DEFAULTS = { ack: "auto", gaps: false };
const SUBSCRIBE_DEFAULTS = { durable: null, ...GROUP_DEFAULTS };

/** A client of a site. It sends nothing before the first call. */
export class Client {
  #link;
  #options;
  #streams = new Set();
  #closed = false;

  constructor(url, options = {}) {
    this.#options = merge(DEFAULTS, options);
    for (const name of ["timeoutSeconds", "bufferCount", "bufferBytes"]) {
      if (!(this.#options[name] > 0)) throw new InvalidRequest(`${name} is positive`, { field: name });
    }
    if (!(this.#options.waitSeconds >= 0)) {
      throw new InvalidRequest("waitSeconds is a number of seconds, 0 or more", { field: "waitSeconds" });
    }
    this.#link = new Link(url, this.#options);
    /** How many gaps all subscriptions of this client have met. */
    this.gaps = 0;
  }

  get url() {
    return this.#link.url;
  }

  /**
   * Publishes one event (an object) or several (an array, stored as a whole or not at all). Resolves once they are on
   * the site's disk, at offsets `firstOffset` to `nextOffset - 1`.
   *
   * Throws ConnectionFailed where no answer came: it is then unknown whether the events were stored, and the client
   * never sends them again by itself.
   */
  async publish(events) {
    const answer = await this.#link.http("POST", "/v1/events", encodeEvents(events));
    return { accepted: answer.accepted, firstOffset: answer.first_offset, nextOffset: answer.next_offset };
  }

  /**
   * A stream of the events that satisfy a filter.
   *
   * Without `durable` the subscription is live: it lasts while it is connected, and after a lost connection it goes on
   * with a gap. With `durable: "name"` it has a mailbox on the site, is made where it does not exist, and goes on where
   * it was; the filter may then be null, to receive what exists. `ack: "auto"` acknowledges a message when the next one
   * is asked for, `ack: "manual"` leaves it to `await message.ack()`. `gaps: true` yields gaps among the messages.
   */
  subscribe(filter, options = {}) {
    const { durable, ...how } = merge(SUBSCRIBE_DEFAULTS, options);
    if (typeof filter !== "string" && (filter != null || durable === null)) {
      throw new InvalidRequest("a live subscription needs a filter, as text", { field: "filter" });
    }
    return this.#open(new Source(durable ?? null, filter ?? null), how);
  }

  /**
   * A stream of what is for any member of a set. An event comes once, with all the `subscriptions` that it is for, and
   * is acknowledged for all members at once, with everything before it.
   */
  subscribeSet(name, options = {}) {
    return this.#follow("set", name, options);
  }

  /** The same for all durable subscriptions whose ids begin with a prefix, also those that are made later. */
  subscribePrefix(prefix, options = {}) {
    return this.#follow("prefix", prefix, options);
  }

  #follow(kind, name, options) {
    if (typeof name !== "string" || name === "") {
      throw new InvalidRequest(`a ${kind} is a text that is not empty`, { field: kind });
    }
    return this.#open(new GroupSource({ [kind]: name }), merge(GROUP_DEFAULTS, options));
  }

  #open(source, { ack, gaps }) {
    if (this.#closed) throw new ClientClosed();
    if (ack !== "auto" && ack !== "manual") {
      throw new InvalidRequest(`ack is "auto" or "manual", not ${ack}`, { field: "ack" });
    }
    const stream = new Stream(this.#link, source, { ...this.#options, ack, gaps }, () => this.gaps++);
    this.#streams.add(stream);
    stream.addEventListener("end", () => this.#streams.delete(stream));
    return stream;
  }

  /** Ends a durable subscription and drops its mailbox. */
  async deleteSubscription(id) {
    await this.#link.http("DELETE", subscriptionPath(id));
  }

  /** Any other request of the API, as in `request("GET", "/v1/subscriptions?limit=10")`; its answer, or null. */
  request(method, path, body) {
    return this.#link.http(method, path, body === undefined ? undefined : JSON.stringify(body));
  }

  /** Ends all streams, sends the acknowledgements under way, and disconnects. */
  async close() {
    this.#closed = true;
    await Promise.all([...this.#streams].map((stream) => stream.close()));
    this.#link.close();
  }
}

/**
 * A client of the site at `url`: by default the site that served the page, or in Node.js the one of CULVER_URL or on
 * this machine.
 */
export function connect(url, options) {
  return new Client(url, options);
}

function merge(defaults, options) {
  for (const name of Object.keys(options)) {
    if (!(name in defaults)) {
      const known = Object.keys(defaults).join(", ");
      throw new InvalidRequest(`there is no option ${name}; there are ${known}`, { field: name });
    }
  }
  return { ...defaults, ...options };
}
