/** Client of Culver, a content-based publish/subscribe service, for browsers and Node.js. */

export interface ClientOptions {
  /** How long to wait for a connection and for the answer to a request; 30 by default. */
  timeoutSeconds?: number;
  /** How long a new subscription waits for a site that is not there yet; 30 by default. */
  waitSeconds?: number;
  /** Messages that a subscription buffers for a slow reader; 10,000 by default. */
  bufferCount?: number;
  /** Characters of JSON that it buffers; 64 Mi by default. */
  bufferBytes?: number;
  /** In place of the global `WebSocket`, which Node.js has from version 22 on. */
  WebSocket?: new (url: string) => any;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
}

export interface SubscribeOptions {
  /** The name of a durable subscription, which is made where it does not exist. Without it, the subscription is live. */
  durable?: string | null;
  /** Whether asking for the next message acknowledges the one before ("auto", the default) or `message.ack()` does. */
  ack?: "auto" | "manual";
  /** Whether iteration yields gaps among the messages. */
  gaps?: boolean;
}

/** The events have the offsets from `firstOffset` up to, not including, `nextOffset`, in the order given. */
export interface Receipt {
  accepted: number;
  firstOffset: number;
  nextOffset: number;
}

export type Attributes = Record<string, any>;

export interface Message<E = Attributes> {
  type: "event";
  subscription: string;
  /** The same for every redelivery. */
  deliveryId: string;
  offset: number;
  /** The event as JSON gives it; a timestamp is `{ $timestamp: string }`. */
  event: E;
  /** This message and all before it are done with; durable once resolved. Does nothing for a live subscription. */
  ack(): Promise<void>;
}

/** Events at offsets from `start` up to, not including, `end` may be missing; `dropped` is their number, if known. */
export interface Gap {
  type: "gap";
  subscription: string;
  start: number;
  end: number;
  dropped: number | null;
  reason: "overflow" | "expired" | "disconnected" | "unavailable" | (string & {});
}

export interface StreamEvents<E = Attributes> {
  message: Message<E>;
  gap: Gap;
  open: { subscription: string; since: number; resumed: boolean };
  disconnected: { error: CulverError; delaySeconds: number };
  end: CulverError | null;
}

type ListenerOptions = boolean | { once?: boolean; passive?: boolean; capture?: boolean; signal?: AbortSignal };

export class Stream<Item = Message, E = Attributes> extends EventTarget implements AsyncIterableIterator<Item> {
  private constructor();
  /** The subscription's id on the site; empty before the start. That of a live one changes with each connection. */
  readonly subscription: string;
  /** The position in the log from which every matching event is delivered; null before the start. */
  readonly since: number | null;
  /** How many gaps were met so far. */
  readonly gaps: number;
  /** Attaches now instead of with the first message; resolves once the subscription is in effect. */
  start(): Promise<void>;
  /** Stops receiving. A live subscription ends; a durable one gets what was not acknowledged again. */
  close(): Promise<void>;
  next(): Promise<IteratorResult<Item, undefined>>;
  return(value?: any): Promise<IteratorResult<Item, any>>;
  [Symbol.asyncIterator](): this;
  addEventListener<K extends keyof StreamEvents>(
    type: K,
    listener: (event: CustomEvent<StreamEvents<E>[K]>) => void,
    options?: ListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: ((event: Event) => void) | { handleEvent(event: Event): void } | null,
    options?: ListenerOptions,
  ): void;
}

export class Client {
  constructor(url?: string | URL, options?: ClientOptions);
  readonly url: string;
  /** How many gaps all subscriptions of this client have met. */
  readonly gaps: number;
  /** Publishes one event, or several as a whole; resolves once they are on the site's disk. */
  publish(events: object | object[]): Promise<Receipt>;
  subscribe<E = Attributes>(
    filter: string | null | undefined,
    options: SubscribeOptions & { gaps: true },
  ): Stream<Message<E> | Gap, E>;
  subscribe<E = Attributes>(filter: string | null | undefined, options?: SubscribeOptions): Stream<Message<E>, E>;
  /** Ends a durable subscription and drops its mailbox. */
  deleteSubscription(id: string): Promise<void>;
  /** Any other request of the API; its answer, or null. */
  request(method: string, path: string, body?: unknown): Promise<any>;
  /** Ends all streams, sends the acknowledgements under way, and disconnects. */
  close(): Promise<void>;
}

/**
 * A client of the site at `url`: by default the site that served the page, or in Node.js the one of CULVER_URL or on
 * this machine.
 */
export function connect(url?: string | URL, options?: ClientOptions): Client;

export class CulverError extends Error {
  /** Stable, for programs. */
  readonly code: string;
  /** The part of the request that the error is about. */
  readonly field: string | null;
}

/** An event has no JSON form; nothing was sent. */
export class InvalidEvent extends CulverError {}

/** An argument is wrong; nothing was sent. */
export class InvalidRequest extends CulverError {}

/** The site cannot be reached, or the connection broke before the answer. */
export class ConnectionFailed extends CulverError {
  /** That of an answer that a site does not give, such as a proxy's 502. */
  readonly status: number | null;
}

/** The site said no; `code`, `message` and `field` are those of its problem document. */
export class RequestRefused extends CulverError {
  readonly status: number | null;
  readonly retryable: boolean;
  readonly problem: Record<string, any>;
}

/** A durable subscription exists with another filter. */
export class Conflict extends CulverError {}

/** The client or the stream is closed. */
export class ClientClosed extends CulverError {}
