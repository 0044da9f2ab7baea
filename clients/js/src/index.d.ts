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
  WebSocket?: new (url: string, protocols?: string[]) => any;
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

/** Those of a group of durable subscriptions. */
export type GroupOptions = Pick<SubscribeOptions, "ack" | "gaps">;

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

/** An event with all of a group that it is for. The id of each delivery is `SUBSCRIPTION:OFFSET`. */
export interface GroupMessage<E = Attributes> {
  type: "event";
  subscriptions: string[];
  offset: number;
  /** The event as JSON gives it; a timestamp is `{ $timestamp: string }`. */
  event: E;
  /**
   * This message and all before it are done with, for all of the group; durable once resolved. Rejects with
   * ConnectionFailed while there is no connection.
   */
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

/** The same for `subscriptions` of a group. */
export type GroupGap = Omit<Gap, "subscription"> & { subscriptions: string[] };

export interface StreamEvents<E = Attributes> {
  message: Message<E>;
  gap: Gap;
  open: { subscription: string; since: number; resumed: boolean };
  disconnected: { error: CulverError; delaySeconds: number };
  end: CulverError | null;
}

export interface GroupEvents<E = Attributes> extends Omit<StreamEvents<E>, "message" | "gap" | "open"> {
  message: GroupMessage<E>;
  gap: GroupGap;
  /** `count` subscriptions are at this gateway; the other `gateways` of the site, by their URLs, have the others. */
  open: { count: number; gateways: string[]; resumed: boolean };
}

type ListenerOptions = boolean | { once?: boolean; passive?: boolean; capture?: boolean; signal?: AbortSignal };

export class Stream<Item = Message, E = Attributes, Events = StreamEvents<E>> extends EventTarget implements AsyncIterableIterator<Item> {
  private constructor();
  /**
   * The subscription's id on the site; empty before the start, and for a group. That of a live one changes with each
   * connection.
   */
  readonly subscription: string;
  /** The position in the log from which every matching event is delivered; null before the start, and for a group. */
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
  addEventListener<K extends keyof Events & string>(
    type: K,
    listener: (event: CustomEvent<Events[K]>) => void,
    options?: ListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: ((event: Event) => void) | { handleEvent(event: Event): void } | null,
    options?: ListenerOptions,
  ): void;
}

export type GroupStream<Item = GroupMessage, E = Attributes> = Stream<Item, E, GroupEvents<E>>;

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
  /** A stream of what is for any member of a set: an event once, with all its `subscriptions`. */
  subscribeSet<E = Attributes>(
    name: string,
    options: GroupOptions & { gaps: true },
  ): GroupStream<GroupMessage<E> | GroupGap, E>;
  subscribeSet<E = Attributes>(name: string, options?: GroupOptions): GroupStream<GroupMessage<E>, E>;
  /** The same for all durable subscriptions whose ids begin with a prefix, also those that are made later. */
  subscribePrefix<E = Attributes>(
    prefix: string,
    options: GroupOptions & { gaps: true },
  ): GroupStream<GroupMessage<E> | GroupGap, E>;
  subscribePrefix<E = Attributes>(prefix: string, options?: GroupOptions): GroupStream<GroupMessage<E>, E>;
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
