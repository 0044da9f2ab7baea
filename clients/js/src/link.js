/** The client's way to the site: requests by `fetch`, and a WebSocket that is opened when it is first needed. */

import { Connection } from "./connection.js";
import { ClientClosed, ConnectionFailed, InvalidRequest, RequestRefused } from "./errors.js";

const DEFAULT_URL = "http://127.0.0.1:8080";

/** From gateway to gateway, in search of the one that has a subscription. */
export const MOST_HOPS = 3;

/** Opens again after a loss, whenever it is asked for a connection; `close` is final. */
export class Link {
  #fetch;
  #WebSocket;
  #timeoutSeconds;
  #connections = new Map(); // a gateway's address -> {opening, connection}
  #closing = new AbortController();

  constructor(url, { fetch, WebSocket, timeoutSeconds }) {
    this.url = parseAddress(url ?? defaultAddress());
    this.#fetch = fetch ?? globalThis.fetch.bind(globalThis);
    this.#WebSocket = WebSocket ?? globalThis.WebSocket;
    this.#timeoutSeconds = timeoutSeconds;
  }

  /** The connection to the site or a gateway, opened now if there is none. Throws ConnectionFailed. */
  async connection(url = this.url) {
    this.#checkOpen();
    if (this.#WebSocket === undefined) {
      throw new InvalidRequest(
        "this runtime has no WebSocket: use Node.js 22 or newer, or pass one as the option WebSocket",
        { field: "WebSocket" },
      );
    }
    let entry = this.#connections.get(url);
    if (entry === undefined || entry.connection?.isLost) {
      const opening = Connection.open(url, this.#WebSocket, this.#timeoutSeconds, this.#closing.signal);
      entry = { opening, connection: null };
      this.#connections.set(url, entry);
    }
    try {
      entry.connection = await entry.opening;
    } catch (error) {
      if (this.#connections.get(url) === entry) this.#connections.delete(url);
      throw error;
    }
    if (this.#closing.signal.aborted) entry.connection.close();
    this.#checkOpen();
    return entry.connection;
  }

  /**
   * One HTTP request, with a body that is JSON text already; its answer, or null if it is empty. Throws RequestRefused,
   * or ConnectionFailed if there was no answer or not one of a site.
   */
  async http(method, path, body, hops = MOST_HOPS, url = this.url) {
    this.#checkOpen();
    let response, text;
    try {
      response = await this.#fetch(url + path, {
        method,
        body,
        headers: body === undefined ? {} : { "Content-Type": "application/json" },
        cache: "no-store",
        signal: AbortSignal.timeout(this.#timeoutSeconds * 1000),
      });
      text = await response.text();
    } catch (error) {
      const reason = error.name === "TimeoutError" ? "it did not answer in time" : (error.cause?.message ?? error.message);
      throw new ConnectionFailed(`cannot reach ${url}: ${reason}`, { cause: error });
    }
    const answer = parse(text);
    if (response.ok && answer !== undefined) return answer;
    // A page of another origin is told of the gateway that has the subscription, and not redirected there.
    if (answer?.code === "elsewhere" && hops > 1) return this.http(method, path, body, hops - 1, parseAddress(answer.url));
    if (!response.ok && typeof answer?.code === "string") throw new RequestRefused(answer, response.status);
    throw new ConnectionFailed(
      `${url} answered ${response.status} to ${method} ${path}; is it a Culver site?`,
      { status: response.status },
    );
  }

  close() {
    this.#closing.abort();
    for (const { connection } of this.#connections.values()) connection?.close();
  }

  #checkOpen() {
    if (this.#closing.signal.aborted) throw new ClientClosed();
  }
}

export function subscriptionPath(id, tail = "") {
  return `/v1/subscriptions/${encodeURIComponent(id)}${tail}`;
}

/** The address as HTTP, without a slash at its end. In a page it may be relative. Throws InvalidRequest. */
export function parseAddress(url) {
  let parsed;
  try {
    parsed = new URL(url, globalThis.location?.href);
  } catch (error) {
    throw new InvalidRequest(`${url} is not a URL`, { field: "url", cause: error });
  }
  const scheme = { "http:": "http:", "ws:": "http:", "https:": "https:", "wss:": "https:" }[parsed.protocol];
  if (scheme === undefined || parsed.search || parsed.hash) {
    throw new InvalidRequest(`${url} is not the address of a site; write it as ${DEFAULT_URL}`, { field: "url" });
  }
  return `${scheme}//${parsed.host}${parsed.pathname.replace(/\/+$/, "")}`;
}

/** The site that served the page; in Node.js, CULVER_URL or a site on this machine. */
function defaultAddress() {
  return globalThis.location?.origin ?? (globalThis.process?.env?.CULVER_URL || DEFAULT_URL);
}

function parse(text) {
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
