/**
 * One WebSocket to a gateway: answers find their request by `ref`, events their receivers by name: a receiver is there
 * for the id of a subscription, or for the number that a group has on this connection.
 *
 * A receiver has four methods, which must not throw or wait: `attached(answer)`, then `deliver(events, size)` and
 * `gap(gap)`, and `ended(error)` when nothing follows on this connection, with null if the subscription was removed or
 * has expired. Events and gaps have `subscription`, and for a group `subscriptions`.
 */

import { ConnectionFailed, RequestRefused } from "./errors.js";

// A connection on which nothing came for so long is asked for a sign of life, and given up if none comes. The site does
// the same; but a browser does not notice by itself that the other side is gone.
const QUIET_SECONDS = 20;

const PROTOCOL = "culver.v2.json";

export class Connection {
  #socket;
  #url;
  #timeoutSeconds;
  #nextReference = 1;
  #pending = new Map(); // reference -> {resolve, reject, receiver, timer}
  #receivers = new Map(); // subscription, or number of a group -> receiver
  #failure = null;
  #heard = true;
  #watch;

  /** Use `open`. */
  constructor(socket, url, timeoutSeconds) {
    this.#socket = socket;
    this.#url = url;
    this.#timeoutSeconds = timeoutSeconds;
    this.#watch = setInterval(() => this.#watchOver(), QUIET_SECONDS * 1000);
    socket.onmessage = ({ data }) => this.#read(data);
    socket.onclose = ({ code, reason }) => this.#end(new ConnectionFailed(closeMessage(url, code, reason)));
    socket.onerror = () => {}; // a close follows
  }

  /** Throws ConnectionFailed, also when `signal` aborts. `url` is the HTTP address of a site or gateway. */
  static open(url, WebSocketClass, timeoutSeconds, signal) {
    return new Promise((resolve, reject) => {
      const socket = new WebSocketClass(`${url.replace(/^http/, "ws")}/v1/ws`, [PROTOCOL]);
      const settle = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", abort);
        socket.onopen = socket.onclose = null;
        socket.onerror = () => {}; // some implementations throw an error that nobody listens for
      };
      const fail = (message) => {
        settle();
        reject(new ConnectionFailed(message));
        socket.close();
      };
      const abort = () => fail(`the connection to ${url} is closed`);
      const timer = setTimeout(() => fail(`${url} did not answer in time`), timeoutSeconds * 1000);
      signal.addEventListener("abort", abort);
      // A browser tells no page why. Node.js 20 has no close event here.
      socket.onerror = socket.onclose = () => fail(`cannot open a WebSocket to ${url}`);
      socket.onopen = () => {
        settle();
        resolve(new Connection(socket, url, timeoutSeconds));
      };
    });
  }

  get isLost() {
    return this.#failure !== null;
  }

  receives(key) {
    return this.#receivers.has(key);
  }

  /**
   * Sends a message and returns its answer; from a `subscribed` or `followed` on, what comes for the
   * subscription or the group goes to `receiver`.
   * Throws RequestRefused, or ConnectionFailed when the connection was lost before the answer.
   */
  request(message, receiver = null) {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    const ref = this.#nextReference++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this.#giveUp(`${this.#url} did not answer in time`),
        this.#timeoutSeconds * 1000,
      );
      this.#pending.set(ref, { resolve, reject, receiver, timer });
      this.#socket.send(JSON.stringify({ ...message, ref }));
    });
  }

  /** What still comes for the subscription or the group is ignored. */
  release(key) {
    this.#receivers.delete(key);
  }

  close() {
    this.#giveUp(`the connection to ${this.#url} is closed`);
  }

  #read(text) {
    this.#heard = true;
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      this.#giveUp(`${this.#url} does not speak Culver's protocol`);
      return;
    }
    const { op, ref } = message;
    const key = message.subscription ?? message.group;
    if (op === "events") {
      this.#deliver(message.events, text.length);
    } else if (op === "gap") {
      const { start, end, dropped, reason } = message;
      for (const [receiver, whose] of this.#concerned(message)) {
        receiver.gap({ type: "gap", ...whose, start, end, dropped, reason });
      }
    } else if (op === "ended" || (op === "error" && key !== undefined && ref === undefined)) {
      const receiver = this.#receivers.get(key);
      this.#receivers.delete(key);
      receiver?.ended(op === "ended" ? null : new RequestRefused(message));
    } else if (op === "error") {
      this.#refuse(ref ?? null, new RequestRefused(message));
    } else if (this.#pending.has(ref)) {
      const request = this.#settle(ref);
      if ((op === "subscribed" || op === "followed") && request.receiver !== null) {
        // Events may follow in the very next message, before whoever asked runs again.
        this.#receivers.set(key, request.receiver);
        request.receiver.attached(message);
      }
      request.resolve(message);
    }
  }

  /** Each receiver gets what is for it of a message at once, with its share of the message's size. */
  #deliver(events, size) {
    const found = new Map(); // receiver -> events
    for (const each of events) {
      for (const [receiver, whose] of this.#concerned(each)) {
        const item = { ...whose, offset: each.offset, event: each.event };
        if (found.has(receiver)) found.get(receiver).push(item);
        else found.set(receiver, [item]);
      }
    }
    for (const [receiver, items] of found) receiver.deliver(items, (size * items.length) / events.length);
  }

  /** The receivers of an event or a gap, each with the subscription, or the subscriptions of its group. */
  *#concerned({ to = [], groups = {} }) {
    for (const subscription of to) {
      const receiver = this.#receivers.get(subscription);
      if (receiver !== undefined) yield [receiver, { subscription }];
    }
    for (const [group, subscriptions] of Object.entries(groups)) {
      const receiver = this.#receivers.get(Number(group));
      if (receiver !== undefined) yield [receiver, { subscriptions }];
    }
  }

  /** A refusal without a reference is that of the only request under way; where there are several, none can know. */
  #refuse(reference, error) {
    const ref = reference === null && this.#pending.size === 1 ? this.#pending.keys().next().value : reference;
    if (this.#pending.has(ref)) this.#settle(ref).reject(error);
    else if (reference === null) this.#giveUp(`${this.#url} refused a message without its reference: ${error.message}`);
  }

  #settle(ref) {
    const request = this.#pending.get(ref);
    this.#pending.delete(ref);
    clearTimeout(request.timer);
    return request;
  }

  #watchOver() {
    if (this.#heard) {
      this.#heard = false;
      this.#socket.send('{"op":"ping"}');
    } else {
      this.#giveUp(`${this.#url} shows no sign of life`);
    }
  }

  #giveUp(message) {
    this.#end(new ConnectionFailed(message));
    this.#socket.close();
  }

  #end(failure) {
    if (this.#failure !== null) return;
    this.#failure = failure;
    clearInterval(this.#watch);
    this.#socket.onmessage = null;
    for (const ref of [...this.#pending.keys()]) this.#settle(ref).reject(failure);
    for (const receiver of this.#receivers.values()) receiver.ended(failure);
    this.#receivers.clear();
  }
}

function closeMessage(url, code, reason) {
  if (code === 1012) return `the connection to ${url} was lost: the site is stopping`;
  if (code === 1006) return `the connection to ${url} was lost`;
  return `the connection to ${url} was lost: closed with code ${code}${reason ? ` (${reason})` : ""}`;
}
