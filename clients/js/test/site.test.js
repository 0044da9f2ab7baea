/** The client against a site, whose address is in CULVER_URL. Without one, these tests are skipped. */

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import test from "node:test";

import { ClientClosed, Conflict, ConnectionFailed, InvalidRequest, RequestRefused, connect } from "../src/index.js";

const URL_OF_SITE = process.env.CULVER_URL;
const why = !URL_OF_SITE
  ? "CULVER_URL is not set"
  : typeof WebSocket === "undefined" && "this Node.js has no WebSocket; start it with --experimental-websocket";

let lastName = 0;
const newName = () => `js-${process.pid}-${++lastName}`;

/** Publishes event 1 while the stream is cut off, and event 2 once it is back. */
async function missOne(client, between, stream, name) {
  between.away = true;
  const lost = heard(stream, "disconnected");
  between.cut();
  await lost;
  await client.publish({ name, n: 1 });
  const opened = heard(stream, "open");
  between.away = false;
  await opened;
  await client.publish({ name, n: 2 });
}

function siteTest(name, work) {
  test(name, { skip: why || false, timeout: 60_000 }, async (t) => {
    const client = connect(URL_OF_SITE);
    t.after(() => client.close());
    await work(client, t);
  });
}

/** A relay in front of the site whose connections can be cut. While it is `away`, it cuts new ones at once. */
async function relay(t) {
  const sockets = new Set();
  const { hostname, port } = new URL(URL_OF_SITE);
  const server = net.createServer((from) => {
    if (it.away) return void from.destroy();
    const to = net.connect(port, hostname);
    for (const [one, other] of [[from, to], [to, from]]) {
      sockets.add(one);
      one.pipe(other);
      one.on("error", () => {});
      one.on("close", () => {
        sockets.delete(one);
        other.destroy();
      });
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    it.cut();
    server.close();
  });
  const it = {
    away: false,
    url: `http://127.0.0.1:${server.address().port}`,
    cut: () => sockets.forEach((socket) => socket.destroy()),
  };
  return it;
}

async function take(stream, count) {
  const items = [];
  while (items.length < count) items.push((await stream.next()).value);
  return items;
}

const heard = (stream, type) =>
  new Promise((resolve) => stream.addEventListener(type, ({ detail }) => resolve(detail), { once: true }));
const numbers = (messages) => messages.map((message) => message.event.n);
const range = (first, end) => Array.from({ length: end - first }, (_, i) => first + i);
const events = (name, first, end) => range(first, end).map((n) => ({ name, n }));

siteTest("publications have receipts", async (client) => {
  const one = await client.publish({ symbol: "XYZ", price: 21.5 });
  assert.equal(one.nextOffset, one.firstOffset + 1);
  assert.equal(one.accepted, 1);
  const batch = await client.publish([{ n: 1 }, { n: 2 }, { n: 3 }]);
  assert.equal(batch.accepted, 3);
  assert.equal(batch.nextOffset - batch.firstOffset, 3);
});

siteTest("a refusal has the site's code, field and message", async (client) => {
  await assert.rejects(client.publish([{ n: 1 }, { at: { $timestamp: "today" } }]), (error) => {
    assert.ok(error instanceof RequestRefused);
    assert.equal(error.code, "invalid_event");
    assert.equal(error.field, "[1].at");
    assert.match(error.message, /not a timestamp/);
    assert.equal(error.status, 400);
    return true;
  });
  const stream = client.subscribe("price >");
  await assert.rejects(stream.next(), (error) => error.code === "invalid_filter" && error.field === "filter");
  await assert.rejects(stream.start(), RequestRefused);
  await assert.rejects(client.deleteSubscription("unknown"), (error) => error.code === "not_found");
  await assert.rejects(client.request("GET", "/v1/nothing"), (error) => error.status === 404);
});

siteTest("a live subscription gets what is published while it is connected", async (client) => {
  const name = newName();
  const stream = client.subscribe(`name = '${name}' AND n > 1`);
  await stream.start();
  const receipt = await client.publish(events(name, 0, 4));
  const messages = await take(stream, 2);
  assert.deepEqual(numbers(messages), [2, 3]);
  assert.equal(messages[0].offset, receipt.firstOffset + 2);
  assert.equal(messages[0].deliveryId, `${stream.subscription}:${messages[0].offset}`);
  assert.ok(stream.since <= receipt.firstOffset);
  await messages[0].ack(); // nothing to acknowledge
});

siteTest("leaving a loop closes the stream", async (client) => {
  const name = newName();
  const stream = client.subscribe(`name = '${name}'`);
  await stream.start();
  await client.publish(events(name, 0, 10));
  const seen = [];
  const ended = heard(stream, "end");
  for await (const { event } of stream) {
    seen.push(event.n);
    if (event.n === 2) break;
  }
  assert.deepEqual(seen, [0, 1, 2]);
  assert.equal(await ended, null);
  assert.deepEqual(await stream.next(), { value: undefined, done: true });
  await assert.rejects(stream.start(), ClientClosed);
});

siteTest("listeners get messages as events", async (client) => {
  const name = newName();
  const stream = client.subscribe(`name = '${name}'`, { durable: name });
  const seen = [];
  const opened = heard(stream, "open");
  const all = new Promise((resolve) => {
    stream.addEventListener("message", ({ detail }) => {
      seen.push(detail.event.n);
      if (detail.event.n === 4) resolve();
    });
  });
  assert.equal((await opened).resumed, false);
  await assert.rejects(stream.next(), InvalidRequest);
  await client.publish(events(name, 0, 5));
  await all;
  assert.deepEqual(seen, [0, 1, 2, 3, 4]);
  await stream.close();
  assert.equal((await client.request("GET", `/v1/subscriptions/${name}`)).pending, 0, "handled ones are acknowledged");
});

siteTest("a stream ends when its subscription is removed", async (client) => {
  const name = newName();
  const stream = client.subscribe(`name = '${name}'`, { durable: name });
  const seen = [];
  const ended = new Promise((resolve) => {
    for (const type of ["message", "end"]) stream.addEventListener(type, () => seen.push(type));
    stream.addEventListener("end", resolve);
  });
  await stream.start();
  await client.publish(events(name, 0, 2));
  await client.deleteSubscription(name);
  await ended;
  assert.equal(seen.at(-1), "end");
  assert.equal((await stream.return()).done, true);
});

siteTest("a durable subscription keeps what was not acknowledged, with the same delivery id", async (client) => {
  const name = newName();
  const stream = client.subscribe(`name = '${name}'`, { durable: name, ack: "manual" });
  await stream.start();
  await client.publish(events(name, 0, 3));
  const first = await take(stream, 3);
  await first[0].ack();
  await stream.close();
  const again = client.subscribe(null, { durable: name, ack: "manual" });
  const second = await take(again, 2);
  assert.deepEqual(
    second.map((message) => message.deliveryId),
    first.slice(1).map((message) => message.deliveryId),
  );
});

siteTest("automatic acknowledgement covers all but the message in hand", async (client) => {
  const name = newName();
  const stream = client.subscribe(`name = '${name}'`, { durable: name });
  await stream.start();
  await client.publish(events(name, 0, 100));
  await take(stream, 42);
  await stream.close();
  const again = client.subscribe(null, { durable: name });
  assert.deepEqual(numbers(await take(again, 2)), [41, 42]);
});

siteTest("a durable subscription with another filter is a conflict", async (client) => {
  const name = newName();
  await client.request("POST", "/v1/subscriptions", { id: name, filter: "a = 1" });
  const other = client.subscribe("a = 2", { durable: name });
  await assert.rejects(other.start(), (error) => error instanceof Conflict && /a = 1/.test(error.message));
  await client.subscribe(" a = 1 ", { durable: name }).start();
  await assert.rejects(client.subscribe(null, { durable: name }).start(), /already being received/);
});

siteTest("a durable stream goes on after a lost connection, without doubles", async (client, t) => {
  const name = newName();
  const between = await relay(t);
  const reader = connect(between.url);
  t.after(() => reader.close());
  const stream = reader.subscribe(`name = '${name}'`, { durable: name, ack: "manual" });
  await stream.start();
  await client.publish(events(name, 0, 5));
  const received = await take(stream, 5);
  const lost = heard(stream, "disconnected");
  between.away = true;
  between.cut();
  assert.ok((await lost).error instanceof ConnectionFailed);
  await client.publish(events(name, 5, 8));
  await assert.rejects(received[4].ack(), ConnectionFailed);
  const opened = heard(stream, "open");
  between.away = false;
  assert.equal((await opened).resumed, true);
  received.push(...(await take(stream, 3)));
  assert.deepEqual(numbers(received), range(0, 8), "nothing was acknowledged, so the site sent all of them again");
  await received[7].ack();
  assert.equal((await client.request("GET", `/v1/subscriptions/${name}`)).pending, 0);
  assert.equal(reader.gaps, 0);
});

siteTest("a live subscription announces what it missed", async (client, t) => {
  const name = newName();
  const between = await relay(t);
  const reader = connect(between.url);
  t.after(() => reader.close());
  const stream = reader.subscribe(`name = '${name}'`, { gaps: true });
  await stream.start();
  await client.publish({ name, n: 0 });
  const [before] = await take(stream, 1);
  const gapEvent = heard(stream, "gap");
  await missOne(client, between, stream, name);
  const [gap, after] = await take(stream, 2);
  assert.equal(gap.type, "gap");
  assert.equal(gap.reason, "disconnected");
  assert.equal(gap.start, before.offset + 1);
  assert.equal(gap.end, stream.since);
  assert.deepEqual(await gapEvent, gap);
  assert.equal(after.event.n, 2);
  assert.deepEqual([stream.gaps, reader.gaps], [1, 1]);
});

siteTest("a gap that nobody asked for is a warning on the console", async (client, t) => {
  const name = newName();
  const between = await relay(t);
  const reader = connect(between.url);
  t.after(() => reader.close());
  const warnings = [];
  t.mock.method(console, "warn", (text) => warnings.push(text));
  const stream = reader.subscribe(`name = '${name}'`);
  await stream.start();
  await client.publish({ name, n: 0 });
  await take(stream, 1);
  await missOne(client, between, stream, name);
  assert.deepEqual(numbers(await take(stream, 1)), [2]);
  assert.match(warnings.join(), /may be missing \(disconnected\)/);
});

siteTest("a reader that is slower than its buffer gets all of a durable subscription", async (client, t) => {
  const name = newName();
  const reader = connect(URL_OF_SITE, { bufferCount: 4 });
  t.after(() => reader.close());
  const stream = reader.subscribe(`name = '${name}'`, { durable: name });
  await stream.start();
  await client.publish(events(name, 0, 50));
  assert.deepEqual(numbers(await take(stream, 50)), range(0, 50));
  assert.equal(stream.gaps, 0);
});

siteTest("a reader that is slower than its buffer gets a gap of a live subscription", async (client, t) => {
  const name = newName();
  const reader = connect(URL_OF_SITE, { bufferCount: 4 });
  t.after(() => reader.close());
  const stream = reader.subscribe(`name = '${name}'`, { gaps: true });
  await stream.start();
  await client.publish(events(name, 0, 50));
  const items = await take(stream, 4);
  assert.deepEqual(numbers(items), [0, 1, 2, 3]);
  const [gap] = await take(stream, 1);
  assert.deepEqual([gap.reason, gap.dropped, gap.end - gap.start], ["overflow", 46, 46]);
});

siteTest("a new subscription waits for a site that is not there yet", async (client, t) => {
  const between = await relay(t);
  between.away = true;
  const reader = connect(between.url, { waitSeconds: 60 });
  t.after(() => reader.close());
  const stream = reader.subscribe("TRUE");
  const refused = heard(stream, "disconnected");
  const started = stream.start();
  const { error, delaySeconds } = await refused;
  assert.ok(error instanceof ConnectionFailed);
  assert.ok(delaySeconds > 0);
  between.away = false;
  await started;
});

siteTest("a client that is closed sends nothing more", async (client) => {
  const stream = client.subscribe("TRUE");
  await stream.start();
  const pending = stream.next();
  await client.close();
  assert.equal((await pending).done, true);
  assert.throws(() => client.subscribe("TRUE"), ClientClosed);
  await assert.rejects(client.publish({ n: 1 }), ClientClosed);
});

test("closing does not wait for a site that never answers", { skip: why || false, timeout: 60_000 }, async (t) => {
  const silent = net.createServer(() => {});
  silent.listen(0, "127.0.0.1");
  await once(silent, "listening");
  t.after(() => silent.close());
  const client = connect(`http://127.0.0.1:${silent.address().port}`, { timeoutSeconds: 600 });
  const started = client.subscribe("TRUE").start();
  const refused = assert.rejects(started, ClientClosed);
  await once(silent, "connection");
  await client.close();
  await refused;
});

test("waiting in vain has the last reason, and the proxy's status", async (t) => {
  const proxy = http.createServer((_, response) => response.writeHead(502).end("away"));
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => proxy.close());
  const client = connect(`http://127.0.0.1:${proxy.address().port}`, { waitSeconds: 0.3 });
  t.after(() => client.close());
  await assert.rejects(client.publish({ n: 1 }), (error) => error instanceof ConnectionFailed && error.status === 502);
  const stream = client.subscribe("TRUE", { durable: "alerts" });
  await assert.rejects(stream.next(), (error) => {
    assert.ok(error instanceof ConnectionFailed);
    assert.match(error.message, /^waited 0.3 s in vain: .* answered 502/);
    assert.equal(error.status, 502);
    return true;
  });
});

test("a gateway that has not the subscription says who has it, with and without a redirect", async (t) => {
  const gateways = [0, 1, 2].map((number) =>
    http.createServer((_, response) => {
      const next = gateways[number + 1];
      if (next === undefined) return void response.end('{"acknowledged": 7}');
      const url = `http://127.0.0.1:${next.address().port}`;
      const redirect = number === 0 ? { Location: `${url}/v1/subscriptions/alerts/ack` } : {};
      response.writeHead(307, redirect).end(JSON.stringify({ code: "elsewhere", status: 307, url }));
    }),
  );
  for (const gateway of gateways) {
    gateway.listen(0, "127.0.0.1");
    await once(gateway, "listening");
    t.after(() => gateway.close());
  }
  const client = connect(`http://127.0.0.1:${gateways[0].address().port}`);
  const answer = await client.request("POST", "/v1/subscriptions/alerts/ack", { delivery_id: "alerts:7" });
  assert.deepEqual(answer, { acknowledged: 7 });
});

test("a server that is not a site is not waited for", async (t) => {
  let requests = 0;
  const server = http.createServer((_, response) => {
    requests += 1;
    response.writeHead(404).end("<html>");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const client = connect(`http://127.0.0.1:${server.address().port}`, { waitSeconds: 600 });
  await assert.rejects(client.subscribe("TRUE", { durable: "alerts" }).start(), /is it a Culver site/);
  assert.equal(requests, 1);
});

test("a runtime without WebSocket says what to do", { skip: typeof WebSocket !== "undefined" }, async () => {
  const client = connect("http://127.0.0.1:9");
  await assert.rejects(client.subscribe("TRUE").start(), /pass one as the option WebSocket/);
});
