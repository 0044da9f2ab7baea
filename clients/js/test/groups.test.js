/** Groups of subscriptions against a site, whose address is in CULVER_URL. Without one, these tests are skipped. */

import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import test from "node:test";

import { ConnectionFailed, InvalidRequest, RequestRefused, connect } from "../src/index.js";

const URL_OF_SITE = process.env.CULVER_URL;
const why = !URL_OF_SITE
  ? "CULVER_URL is not set"
  : typeof WebSocket === "undefined" && "this Node.js has no WebSocket; start it with --experimental-websocket";

let lastName = 0;
const newName = () => `group-${process.pid}-${++lastName}`;

/** A set whose member i gets the events of `name` with n above i. */
async function makeSet(client, name, bounds) {
  await client.request("POST", `/v1/sets/${name}`, { filter: "name = ? AND n > ?", rows: bounds.map((n) => [name, n]) });
}

async function take(stream, count) {
  const items = [];
  while (items.length < count) items.push((await stream.next()).value);
  return items;
}

const pending = async (client, id) => (await client.request("GET", `/v1/subscriptions/${id}`)).pending;

async function until(condition) {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}

function siteTest(name, work) {
  test(name, { skip: why || false, timeout: 60_000 }, async (t) => {
    const client = connect(URL_OF_SITE);
    t.after(() => client.close());
    await work(client, t);
  });
}

siteTest("an event of a set comes once, with all its subscriptions", async (client) => {
  const name = newName();
  await makeSet(client, name, [0, 1, 2]);
  const stream = client.subscribeSet(name);
  await stream.start();
  await client.publish([{ name, n: 1 }, { name, n: 3 }, { name, n: 0 }, { name, n: 2 }]);
  const messages = await take(stream, 3);
  assert.deepEqual(
    messages.map(({ event, subscriptions }) => [event.n, [...subscriptions].sort()]),
    [[1, [`${name}.0`]], [3, [`${name}.0`, `${name}.1`, `${name}.2`]], [2, [`${name}.0`, `${name}.1`]]],
  );
  assert.deepEqual(Object.keys(messages[0]).sort(), ["ack", "event", "offset", "subscriptions", "type"]);
  // The third is in hand; the two before it are acknowledged for all members.
  await until(async () => (await pending(client, `${name}.0`)) === 1 && (await pending(client, `${name}.2`)) === 0);
});

siteTest("a manual acknowledgement is for the whole group, and another stream begins behind it", async (client) => {
  const name = newName();
  await makeSet(client, name, [0, 1]);
  const stream = client.subscribeSet(name, { ack: "manual" });
  await stream.start();
  await client.publish([{ name, n: 1 }, { name, n: 2 }, { name, n: 3 }]);
  const [, second] = await take(stream, 3);
  await second.ack();
  assert.equal(await pending(client, `${name}.0`), 1);
  assert.equal(await pending(client, `${name}.1`), 1);
  await stream.close();
  await assert.rejects(second.ack(), ConnectionFailed);
  const [third] = await take(client.subscribeSet(name), 1);
  assert.equal(third.event.n, 3);
});

siteTest("a prefix has subscriptions that are made later, and a removed set ends its stream", async (client) => {
  const name = newName();
  await makeSet(client, `${name}-set`, [0]);
  const opened = [];
  const all = client.subscribePrefix(name);
  all.addEventListener("open", ({ detail }) => opened.push(detail));
  await all.start();
  assert.deepEqual(opened.map(({ count, resumed }) => [count, resumed]), [[1, false]]);
  await client.request("POST", "/v1/subscriptions", { id: `${name}-one`, filter: `name = '${name}-set'` });
  await client.publish({ name: `${name}-set`, n: 5 });
  const seen = new Set();
  while (seen.size < 2) (await all.next()).value.subscriptions.forEach((each) => seen.add(each));
  assert.deepEqual([...seen].sort(), [`${name}-one`, `${name}-set.0`]);

  const set = client.subscribeSet(`${name}-set`);
  await set.start();
  const ended = set.next();
  await client.request("DELETE", `/v1/sets/${name}-set`);
  for (let item = await ended; !item.done; item = await set.next());
  await assert.rejects(client.subscribeSet(`${name}-set`).start(), RequestRefused);
});

siteTest("groups and subscriptions of one connection keep apart", async (client) => {
  const name = newName();
  await makeSet(client, name, [0]);
  const streams = [
    client.subscribeSet(name), client.subscribePrefix(name), client.subscribe(`name = '${name}'`),
    client.subscribe(`name = '${name}'`, { durable: `other-${name}` }),
  ];
  for (const stream of streams) await stream.start();
  await client.publish([1, 2, 3].map((n) => ({ name, n })));
  for (const stream of streams) {
    const messages = await take(stream, 3);
    assert.deepEqual(messages.map(({ event }) => event.n), [1, 2, 3]);
  }
});

siteTest("a lost connection is made again, and the group goes on where it was", async (client, t) => {
  const sockets = new Set();
  const { hostname, port } = new URL(URL_OF_SITE);
  const relay = net.createServer((from) => {
    const to = net.connect(port, hostname);
    for (const [one, other] of [[from, to], [to, from]]) {
      sockets.add(one.on("error", () => {}).on("close", () => other.destroy()));
      one.pipe(other);
    }
  });
  relay.listen(0, "127.0.0.1");
  await once(relay, "listening");
  const reader = connect(`http://127.0.0.1:${relay.address().port}`);
  t.after(async () => {
    await reader.close();
    relay.close();
    sockets.forEach((socket) => socket.destroy());
  });
  const name = newName();
  await makeSet(client, name, [0]);
  const stream = reader.subscribeSet(name);
  await stream.start();
  const numbers = [];
  for (let round = 0; round < 4; round++) {
    await client.publish(Array.from({ length: 50 }, (_, i) => ({ name, n: 50 * round + i + 1 })));
    numbers.push(...(await take(stream, 30)).map(({ event }) => event.n));
    sockets.forEach((socket) => socket.destroy());
    sockets.clear();
  }
  numbers.push(...(await take(stream, 80)).map(({ event }) => event.n));
  assert.deepEqual(numbers, Array.from({ length: 200 }, (_, i) => i + 1));
  await until(async () => (await pending(client, `${name}.0`)) <= 1);
});

siteTest("a reader that is slower than its buffer gets all of a group", async (client, t) => {
  const slow = connect(URL_OF_SITE, { bufferCount: 4 });
  t.after(() => slow.close());
  const name = newName();
  await makeSet(client, name, [0, 10]);
  const stream = slow.subscribeSet(name);
  await stream.start();
  await client.publish(Array.from({ length: 100 }, (_, i) => ({ name, n: i + 1 })));
  const messages = await take(stream, 100);
  assert.deepEqual(messages.map(({ event }) => event.n), Array.from({ length: 100 }, (_, i) => i + 1));
});

test("a group needs a name", () => {
  const client = connect("http://127.0.0.1:9");
  assert.throws(() => client.subscribeSet(""), InvalidRequest);
  assert.throws(() => client.subscribePrefix(null), InvalidRequest);
  assert.throws(() => client.subscribeSet("quotes", { durable: "x" }), InvalidRequest);
});
