/**
 * Streams, which `subscribe` returns: each attaches its subscription again and again.
 *
 *     attaching ──> attached ──┬─ connection lost ──> wait (back-off) ──> attaching
 *         ^                    ├─ buffer full (durable only): detach, wait until it is low ──┐
 *         └────────────────────┼────────────────────────────────────────────────────────────┘
 *                              └─ subscription removed, or stream closed ──> finished
 */

import { Acker } from "./acker.js";
import { Buffer } from "./buffer.js";
import { ClientClosed, ConnectionFailed, CulverError, InvalidRequest, RequestRefused } from "./errors.js";
import { MOST_HOPS, parseAddress, subscriptionPath } from "./link.js";
import { Flag, atMost, backoff } from "./waiting.js";

const FAREWELL_SECONDS = 2;
const NOT_THERE_YET = [null, 502, 503, 504]; // no answer, or that of a proxy whose site is away

/**
 * An asynchronous iterator over the messages of a subscription, and the target of its events:
 *
 *     message       {detail: message}, as long as somebody listens; then nobody may iterate
 *     gap           {detail: gap}, when the reader reaches it
 *     open          {detail: {subscription, since, resumed}}, attached, for the first time or again
 *     disconnected  {detail: {error, delaySeconds}}, not attached; the next attempt follows after that time
 *     end           {detail: error or null}, nothing more comes
 *
 * It begins with the first `next`, with `start`, or with the first listener for `message`.
 */
export class Stream extends EventTarget {
  #link;
  #source;
  #buffer;
  #acker;
  #options;
  #countGap;
  #delays;
  #giveUpAt = null; // for the first attachment
  #connection = null; // the one it is attached to, while it is
  #gateway; // the one to try first, where it is not the client's own
  #attached = new Flag();
  #changed = new Flag(); // something for the reader: an item, or the end
  #interrupted = new Flag(); // something for the feed: lost, full, removed, closed
  #drained = new Flag();
  #closing = new Flag();
  #finished = new Flag();
  #running = false;
  #loss = null;
  #removed = false;
  #error = null;
  #inHand = null;
  #order = 0; // how many messages have come
  #reading = Promise.resolve();
  #pumping = false;
  #hearsGaps = false;

  /** Use `client.subscribe`, `subscribeSet` and `subscribePrefix`. */
  constructor(link, source, options, countGap) {
    super();
    this.#link = link;
    this.#source = source;
    this.#options = options;
    this.#countGap = countGap;
    this.#buffer = new Buffer({
      durable: this.#source.isDurable,
      ascends: !this.#source.isGroup,
      maxCount: options.bufferCount,
      maxBytes: options.bufferBytes,
    });
    this.#acker = new Acker((item) => this.#acknowledge(item), this.#attached);
    this.#delays = backoff();
    /** How many gaps were met so far. */
    this.gaps = 0;
  }

  /**
   * The subscription's id on the site; empty before the start, and for a group. That of a live one changes with each
   * connection.
   */
  get subscription() {
    return this.#source.subscription;
  }

  /** The position in the log from which every matching event is delivered; null before the start, and for a group. */
  get since() {
    return this.#source.since;
  }

  /** Attaches now instead of with the first message; resolves once the subscription is in effect. */
  async start() {
    this.#launch();
    while (!this.#source.wasAttached && !this.#finished.isSet) {
      this.#changed.clear();
      await this.#changed.wait();
    }
    if (!this.#source.wasAttached) throw this.#error ?? new ClientClosed("the stream");
  }

  /** Stops receiving. A live subscription ends; a durable one gets what was not acknowledged again. */
  async close() {
    this.#closing.set();
    this.#interrupted.set();
    this.#drained.set();
    this.#changed.set();
    if (!this.#running) {
      this.#running = true;
      this.#run();
    }
    await this.#finished.wait();
  }

  // --- reading ---

  [Symbol.asyncIterator]() {
    return this;
  }

  /** The next message (or gap, with `gaps: true`). Throws, after all of them, what ended the stream. */
  next() {
    if (this.#pumping) return Promise.reject(new InvalidRequest("a stream with a listener for message is read by it"));
    return this.#read();
  }

  /** Leaving a `for await` closes the stream. */
  async return(value) {
    await this.close();
    return { value, done: true };
  }

  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
    if (type === "gap") this.#hearsGaps = true;
    if (type === "message" && !this.#pumping) {
      this.#pumping = true;
      // The listeners that are added in this turn hear the first events too.
      queueMicrotask(() => this.#pump());
    }
  }

  async #pump() {
    try {
      for (;;) {
        const { value, done } = await this.#read();
        if (done) return;
        if (value.type === "event") this.#tell("message", value);
      }
    } catch {
      // The event `end` has the error.
    } finally {
      await this.#finished.wait();
      this.#tell("end", this.#error); // after all messages
    }
  }

  /** One reader at a time: calls that overlap are served in their order. */
  #read() {
    const result = this.#reading.then(() => this.#take());
    this.#reading = result.catch(() => {});
    return result;
  }

  async #take() {
    if (!this.#closing.isSet) this.#launch();
    if (this.#options.ack === "auto" && this.#inHand !== null && !this.#removed) this.#acker.want(this.#inHand);
    this.#inHand = null;
    for (;;) {
      if (this.#closing.isSet) return { value: undefined, done: true };
      this.#changed.clear();
      const item = this.#buffer.take();
      if (item === null) {
        if (this.#finished.isSet && this.#error !== null) throw this.#error;
        if (this.#finished.isSet) return { value: undefined, done: true };
        await this.#changed.wait();
        continue;
      }
      if (this.#buffer.isLow) this.#drained.set();
      if (item.type === "event") {
        const { order, ...message } = item;
        if (this.#source.isDurable) this.#inHand = item;
        return { value: message, done: false };
      }
      this.#announce(item);
      if (this.#options.gaps) return { value: item, done: false };
    }
  }

  #announce(gap) {
    this.gaps += 1;
    this.#countGap();
    this.#tell("gap", gap);
    if (this.#options.gaps || this.#hearsGaps) return;
    const number = gap.dropped === null ? "an unknown number" : gap.dropped;
    console.warn(
      `culver: ${this.#source}: ${number} of the events ${gap.start} to ${gap.end - 1} may be missing (${gap.reason})`,
    );
  }

  // --- the feed ---

  #launch() {
    if (this.#closing.isSet) throw new ClientClosed("the stream");
    if (this.#running) return;
    this.#running = true;
    this.#giveUpAt = performance.now() + this.#options.waitSeconds * 1000;
    this.#run();
  }

  async #run() {
    try {
      await this.#supply();
    } catch (error) {
      if (!this.#closing.isSet) this.#error = error;
    }
    await this.#acker.flush(FAREWELL_SECONDS);
    await this.#detach();
    this.#finished.set();
    this.#changed.set();
    if (!this.#pumping) this.#tell("end", this.#error);
  }

  async #supply() {
    while (!this.#closing.isSet && !this.#removed) {
      try {
        await Promise.race([this.#attach(), this.#closing.wait()]);
        this.#delays = backoff();
        await this.#interrupted.wait();
        if (this.#loss !== null) throw this.#loss;
      } catch (error) {
        if (this.#closing.isSet) return;
        await this.#waitBeforeNextTry(error);
        continue;
      }
      if (!this.#removed && !this.#closing.isSet) {
        await this.#detach();
        await this.#drained.wait();
      }
    }
  }

  async #attach() {
    this.#interrupted.clear();
    this.#buffer.resume();
    this.#loss = null;
    const resumed = this.#source.wasAttached;
    await this.#source.prepare(this.#link);
    const connection = await this.#attachWhereItIs();
    if (this.#loss === null && !this.#removed) {
      this.#connection = connection;
      this.#attached.set();
    }
    this.#changed.set();
    if (this.#closing.isSet) await this.#detach(); // nobody waited for it
    else this.#tell("open", this.#opened(resumed));
  }

  #opened(resumed) {
    const { subscription, since, isGroup, count, gateways } = this.#source;
    return isGroup ? { count, gateways, resumed } : { subscription, since, resumed };
  }

  /** At the gateway that has the subscription; others say which one that is. */
  async #attachWhereItIs() {
    for (let hop = 0; hop < MOST_HOPS; hop++) {
      const gateway = this.#gateway;
      this.#gateway = undefined;
      const connection = await this.#link.connection(gateway);
      if (!this.#source.isGroup && connection.receives(this.#source.key)) {
        throw new InvalidRequest(`${this.#source} is already being received by this client`);
      }
      try {
        await connection.request(this.#source.attachment(this.#buffer), this.#receiver);
        this.#gateway = gateway;
        return connection;
      } catch (error) {
        if (error.code !== "elsewhere") throw error;
        this.#gateway = parseAddress(error.problem.url);
      }
    }
    throw new ConnectionFailed(`the gateways do not agree who has ${this.#source}`);
  }

  /** Ends what the site holds for this stream on the connection; a lost connection has ended it already. */
  async #detach() {
    const connection = this.#connection;
    this.#connection = null;
    this.#attached.clear();
    if (connection === null) return;
    connection.release(this.#source.key);
    try {
      await atMost(connection.request({ op: "detach", ...this.#source.address }), FAREWELL_SECONDS);
    } catch (error) {
      if (!(error instanceof CulverError)) throw error;
    }
  }

  /** Throws where another try cannot help, or the time for the first attachment is over. */
  async #waitBeforeNextTry(error) {
    const isFirst = !this.#source.wasAttached;
    const delaySeconds = this.#delays.next().value;
    const mayHelp =
      error instanceof RequestRefused
        ? error.retryable
        : error instanceof ConnectionFailed && (!isFirst || NOT_THERE_YET.includes(error.status));
    if (!mayHelp) throw error;
    if (isFirst && performance.now() + delaySeconds * 1000 > this.#giveUpAt) {
      const { waitSeconds } = this.#options;
      if (waitSeconds === 0) throw error;
      const status = error.status ?? null;
      throw new ConnectionFailed(`waited ${waitSeconds} s in vain: ${error.message}`, { status, cause: error });
    }
    this.#tell("disconnected", { error, delaySeconds });
    await this.#closing.waitAtMost(delaySeconds);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  // --- what the connection calls ---

  #receiver = {
    attached: (answer) => {
      const gap = this.#source.accept(answer, this.#buffer);
      if (gap !== null) this.#receiver.gap(gap);
    },
    deliver: (events, size) => {
      if (!this.#buffer.offer(events.map((each) => this.#message(each)), size)) {
        if (!this.#buffer.isLow) this.#drained.clear();
        this.#interrupted.set();
      }
      this.#changed.set();
    },
    gap: (gap) => {
      this.#buffer.announce(gap);
      this.#changed.set();
    },
    ended: (error) => {
      this.#removed = error === null;
      this.#loss = error;
      this.#connection = null;
      this.#attached.clear();
      this.#interrupted.set();
    },
  };

  #message(received) {
    const { offset, event } = received;
    const item = { offset, order: this.#order++ };
    const label = this.#source.label(offset, received);
    return { type: "event", ...label, offset, event, order: item.order, ack: () => this.#acknowledge(item) };
  }

  /**
   * Over the WebSocket where the subscription is attached, by HTTP otherwise: both are idempotent. Groups are
   * acknowledged over the WebSocket only.
   */
  async #acknowledge(item) {
    if (!this.#source.isDurable) return;
    const acknowledgement = this.#source.acknowledgement(item.offset);
    try {
      if (this.#connection === null) throw new ConnectionFailed("not attached");
      await this.#connection.request({ op: "ack", ...acknowledgement });
    } catch (error) {
      if (!(error instanceof ConnectionFailed) || this.#source.isGroup) throw error;
      await this.#link.http("POST", subscriptionPath(this.subscription, "/ack"), JSON.stringify(acknowledgement));
    }
    this.#acker.note(item);
  }
}
