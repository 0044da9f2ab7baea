/** A subscription as the client sees it: how it is attached, and attached again. */

import { Conflict, RequestRefused } from "./errors.js";
import { subscriptionPath } from "./link.js";

/**
 * A durable subscription has a name, and a mailbox on the site that keeps what was not acknowledged. It is made where
 * it does not exist; one that exists must have the same filter.
 *
 * A live one exists while it is connected. Each attachment is a new subscription on the site with a new name; the site,
 * told where the last one left off, announces what happened in between as a gap.
 */
export class Source {
  #filter;

  isGroup = false;

  constructor(name, filter) {
    this.isDurable = name !== null;
    this.subscription = name ?? "";
    /** The position from which every matching event is delivered; null before the first attachment. */
    this.since = null;
    this.#filter = filter;
  }

  /** What the connection knows it by. */
  get key() {
    return this.subscription;
  }

  get wasAttached() {
    return this.since !== null;
  }

  toString() {
    return this.isDurable ? `subscription ${this.subscription}` : "live subscription";
  }

  /** Whom requests on the connection are about. */
  get address() {
    return { subscription: this.subscription };
  }

  deliveryId(offset) {
    return `${this.subscription}:${offset}`;
  }

  /** What a message has besides its offset and its event. */
  label(offset) {
    return { subscription: this.subscription, deliveryId: this.deliveryId(offset) };
  }

  acknowledgement(offset) {
    return { delivery_id: this.deliveryId(offset) };
  }

  /** Makes sure that the site has a durable subscription. */
  async prepare(link) {
    if (!this.isDurable || this.#filter === null || this.since !== null) return;
    try {
      await link.http("POST", "/v1/subscriptions", JSON.stringify({ id: this.subscription, filter: this.#filter }));
    } catch (error) {
      if (!(error instanceof RequestRefused) || error.code !== "conflict") throw error;
      const existing = await link.http("GET", subscriptionPath(this.subscription));
      if (existing.filter.trim() !== this.#filter.trim()) {
        throw new Conflict(
          `${this} exists with the filter ${existing.filter}; delete it, or leave the filter out to receive what it has`,
          { field: "filter", cause: error },
        );
      }
    }
  }

  /** The message that attaches it, to go on after what the buffer has seen. */
  attachment(buffer) {
    if (this.isDurable) {
      const after = buffer.lastOffset >= 0 ? this.deliveryId(buffer.lastOffset) : undefined;
      return { op: "attach", subscription: this.subscription, after };
    }
    const missingFrom = this.#missingFrom(buffer);
    return { op: "subscribe", filter: this.#filter, after: missingFrom > 0 ? missingFrom - 1 : undefined };
  }

  /** Takes the answer to `attachment`; returns a gap that only the client can know of, or null. */
  accept({ subscription, since }, buffer) {
    const isFirst = this.since === null;
    const missingFrom = this.#missingFrom(buffer);
    this.subscription = subscription;
    this.since = since;
    if (this.isDurable || isFirst) return null;
    const gap = { type: "gap", subscription, dropped: null };
    if (since < missingFrom) {
      // The site's log is shorter than what was seen of it: another log. Its offsets start anew.
      buffer.lastOffset = since - 1;
      return { ...gap, start: since, end: missingFrom, reason: "unavailable" };
    }
    if (missingFrom === 0 && since > 0) {
      // "After" cannot say "before the first offset", so the site had nothing to announce a gap from.
      return { ...gap, start: 0, end: since, reason: "disconnected" };
    }
    return null;
  }

  /** The first position that a live subscription has not covered yet; 0 before its first attachment. */
  #missingFrom(buffer) {
    return this.since === null ? 0 : Math.max(buffer.lastOffset + 1, this.since);
  }
}

/**
 * Many durable subscriptions that are received, and acknowledged, together: `what` is `{ set }` or `{ prefix }`. The
 * group has another number on each connection.
 *
 * Its events ascend, but the site steps back for a subscription that joins behind them. So the offset to go on after is
 * that of the newest event, not the highest, and a smaller offset does not make a redelivery.
 */
export class GroupSource {
  isDurable = true;
  isGroup = true;
  subscription = "";
  since = null;
  /** The number on the connection; null before the first attachment. */
  key = null;
  /** How many subscriptions the gateway has of the group, and the URLs of those that have others. */
  count = null;
  gateways = [];
  #what;

  constructor(what) {
    this.#what = what;
  }

  get wasAttached() {
    return this.count !== null;
  }

  get address() {
    return { group: this.key };
  }

  toString() {
    const [[kind, name]] = Object.entries(this.#what);
    return `${kind} ${name}`;
  }

  label(_, { subscriptions }) {
    return { subscriptions };
  }

  acknowledgement(offset) {
    return { group: this.key, offset };
  }

  async prepare() {}

  attachment(buffer) {
    return { op: "follow", ...this.#what, after: buffer.lastOffset >= 0 ? buffer.lastOffset : undefined };
  }

  accept({ group, count, gateways }) {
    this.key = group;
    this.count = count;
    this.gateways = gateways;
    return null;
  }
}
