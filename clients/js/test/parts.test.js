import assert from "node:assert/strict";
import test from "node:test";

import { InvalidEvent, InvalidRequest, RequestRefused, connect } from "../src/index.js";
import { Acker } from "../src/acker.js";
import { ConnectionFailed } from "../src/errors.js";
import { encodeEvents } from "../src/events.js";
import { parseAddress } from "../src/link.js";
import { GroupSource, Source } from "../src/source.js";
import { Flag, backoff } from "../src/waiting.js";

test("an event and a batch become JSON, with timestamps for dates", () => {
  const at = new Date("2026-01-05T08:30:00Z");
  assert.deepEqual(JSON.parse(encodeEvents({ price: 21.5, at, missing: undefined })), {
    price: 21.5,
    at: { $timestamp: "2026-01-05T08:30:00.000Z" },
  });
  assert.equal(encodeEvents([{ n: 1 }, { n: 2 }]), '[{"n":1},{"n":2}]');
});

test("what JSON would change or does not have is refused by its name", () => {
  const cyclic = {};
  cyclic.self = cyclic;
  for (const value of [NaN, Infinity, 10n, () => 1, Symbol("s"), new Date(NaN)]) {
    assert.throws(
      () => encodeEvents({ inner: { price: value } }),
      (error) => error instanceof InvalidEvent && error.field === "price" && error.code === "invalid_event",
    );
  }
  for (const event of [null, undefined, 7, "text", [], [[]], new Date(), cyclic]) {
    assert.throws(() => encodeEvents(event), InvalidEvent);
  }
});

test("addresses of a site are read in all their forms", () => {
  assert.equal(parseAddress("http://site:8080"), "http://site:8080");
  assert.equal(parseAddress("wss://site/culver/"), "https://site/culver");
  assert.equal(parseAddress("ws://127.0.0.1:1/"), "http://127.0.0.1:1");
  for (const wrong of ["site:8080", "ftp://site", "http://site/?a=1", "http://site/#a", "", "/relative"]) {
    assert.throws(
      () => parseAddress(wrong),
      (error) => error instanceof InvalidRequest && error.field === "url",
    );
  }
});

test("options with a wrong name or value are refused", () => {
  assert.throws(() => connect("http://site", { timeout: 3 }), /there is no option timeout; there are .*timeoutSeconds/);
  assert.throws(() => connect("http://site", { timeoutSeconds: 0 }), InvalidRequest);
  assert.throws(() => connect("http://site", { waitSeconds: NaN }), InvalidRequest);
  const client = connect("http://site");
  assert.throws(() => client.subscribe("a = 1", { ack: "never" }), InvalidRequest);
  assert.throws(() => client.subscribe(), InvalidRequest);
});

test("the back-off doubles up to its limit, with jitter over the upper half", () => {
  const take = (delays, count) => Array.from({ length: count }, () => delays.next().value);
  assert.deepEqual(take(backoff(() => 1, 1, 5), 5), [1, 2, 4, 5, 5]);
  assert.deepEqual(take(backoff(() => 0, 1, 5), 5), [0.5, 1, 2, 2.5, 2.5]);
});

test("a flag wakes all who wait, and those who come later", async () => {
  const flag = new Flag();
  assert.equal(await flag.waitAtMost(0.001), false);
  const early = flag.wait();
  flag.clear(); // those who wait already still wait for the same
  flag.set();
  await early;
  await flag.wait();
  flag.clear();
  assert.equal(flag.isSet, false);
  assert.equal(await flag.waitAtMost(0.001), false);
});

test("a refusal takes over what the problem document says", () => {
  const problem = { code: "invalid_filter", detail: "the filter ends", field: "filter", status: 400, position: 7 };
  const error = new RequestRefused(problem);
  assert.equal(error.code, "invalid_filter");
  assert.equal(error.message, "the filter ends");
  assert.equal(error.field, "filter");
  assert.equal(error.status, 400);
  assert.equal(error.retryable, false);
  assert.equal(error.problem.position, 7);
  assert.equal(error.name, "RequestRefused");
});

test("a live subscription tells the site where it left off", () => {
  const source = new Source(null, "TRUE");
  const buffer = { lastOffset: -1 };
  assert.deepEqual(source.attachment(buffer), { op: "subscribe", filter: "TRUE", after: undefined });
  assert.equal(source.accept({ subscription: "live-1", since: 5 }, buffer), null);
  assert.equal(source.attachment(buffer).after, 4);
  buffer.lastOffset = 8;
  assert.equal(source.attachment(buffer).after, 8);
  assert.equal(source.accept({ subscription: "live-2", since: 20 }, buffer), null, "the site announces this gap");
  assert.equal(source.subscription, "live-2");
});

test("a live subscription announces what only the client can know", () => {
  const buffer = { lastOffset: -1 };
  const fromZero = new Source(null, "TRUE");
  fromZero.accept({ subscription: "live-1", since: 0 }, buffer);
  const first = fromZero.accept({ subscription: "live-2", since: 3 }, buffer);
  assert.deepEqual([first.start, first.end, first.reason], [0, 3, "disconnected"]);

  const replaced = new Source(null, "TRUE");
  replaced.accept({ subscription: "live-1", since: 0 }, buffer);
  buffer.lastOffset = 99;
  const second = replaced.accept({ subscription: "live-2", since: 7 }, buffer);
  assert.deepEqual([second.start, second.end, second.reason], [7, 100, "unavailable"]);
  assert.equal(buffer.lastOffset, 6, "offsets of the other log are not taken for redeliveries");
});

test("acknowledgements under way are one at a time and always the newest", async () => {
  const sent = [];
  const answers = [];
  const attached = new Flag();
  const acker = new Acker(({ offset }) => {
    sent.push(offset);
    return new Promise((resolve, reject) => answers.push({ resolve, reject }));
  }, attached);
  const items = [0, 1, 2, 3].map((order) => ({ order, offset: order }));
  for (const item of items) acker.want(item);
  assert.deepEqual(sent, [0]);
  acker.note(items[0]);
  answers[0].resolve();
  await new Promise(setImmediate);
  assert.deepEqual(sent, [0, 3]);
  attached.set();
  answers[1].reject(new ConnectionFailed("lost"));
  while (sent.length < 3) await new Promise(setImmediate);
  assert.deepEqual(sent, [0, 3, 3], "it is sent again once the subscription is attached again");
  acker.note(items[3]);
  answers[2].resolve();
  await acker.flush(10);
});

test("the last chance of an acknowledgement is one try", async () => {
  let tries = 0;
  const acker = new Acker(async () => {
    tries += 1;
    throw new ConnectionFailed("away");
  }, new Flag());
  acker.want({ order: 7, offset: 7 });
  await acker.flush(10);
  assert.equal(tries, 2);
});

test("an acknowledgement of a group follows its order where the site steps back", async () => {
  const sent = [];
  const acker = new Acker(async (item) => {
    sent.push(item.offset);
    acker.note(item);
  }, new Flag());
  for (const item of [{ order: 0, offset: 8 }, { order: 1, offset: 3 }]) {
    acker.want(item);
    await new Promise(setImmediate);
  }
  assert.deepEqual(sent, [8, 3]);
  await acker.flush(10);
});

test("a group goes on after the newest event, and knows its number on each connection", () => {
  const source = new GroupSource({ set: "quotes" });
  assert.deepEqual(source.attachment({ lastOffset: -1 }), { op: "follow", set: "quotes", after: undefined });
  assert.equal(source.wasAttached, false);
  source.accept({ group: 2, count: 40, gateways: [] });
  assert.deepEqual(source.acknowledgement(7), { group: 2, offset: 7 });
  assert.deepEqual(source.address, { group: 2 });
  assert.equal(source.attachment({ lastOffset: 7 }).after, 7);
});
