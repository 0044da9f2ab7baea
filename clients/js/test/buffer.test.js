import assert from "node:assert/strict";
import test from "node:test";

import { Buffer } from "../src/buffer.js";

const message = (offset) => ({ type: "event", subscription: "s", offset });
const messages = (first, end) => Array.from({ length: end - first }, (_, i) => message(first + i));
const gap = (start, end, dropped = null) => ({ type: "gap", subscription: "s", start, end, dropped, reason: "expired" });

function buffer({ durable, ascends, maxCount = 4, maxBytes = 1000 }) {
  return new Buffer({ durable, ascends, maxCount, maxBytes });
}

function takeAll(from) {
  const items = [];
  for (let item = from.take(); item !== null; item = from.take()) {
    items.push(item.type === "gap" ? [item.start, item.end, item.dropped] : item.offset);
  }
  return items;
}

test("a redelivery is dropped", () => {
  const it = buffer({ durable: true });
  it.offer(messages(0, 2), 10);
  it.offer(messages(0, 3), 10);
  assert.deepEqual(takeAll(it), [0, 1, 2]);
  it.offer(messages(1, 4), 10);
  assert.deepEqual(takeAll(it), [3]);
});

test("a full buffer of a durable subscription takes nothing until it is resumed", () => {
  const it = buffer({ durable: true });
  assert.equal(it.offer(messages(0, 6), 60), false);
  assert.equal(it.take().offset, 0);
  assert.equal(it.offer(messages(6, 8), 20), false);
  assert.equal(it.lastOffset, 3);
  assert.deepEqual(takeAll(it), [1, 2, 3]);
  it.resume();
  assert.equal(it.offer(messages(4, 6), 20), true);
  assert.deepEqual(takeAll(it), [4, 5]);
});

test("a full buffer of a live subscription has one gap in place of what it dropped", () => {
  const it = buffer({ durable: false });
  assert.equal(it.offer(messages(0, 7), 70), true);
  assert.equal(it.take().offset, 0);
  it.offer(messages(7, 9), 20);
  assert.deepEqual(takeAll(it), [1, 2, 3, [4, 9, 5]]);
  it.offer(messages(9, 11), 20);
  assert.deepEqual(takeAll(it), [9, 10]);
});

test("bytes fill a buffer too", () => {
  const it = buffer({ durable: true, maxBytes: 100 });
  assert.equal(it.offer(messages(0, 1), 60), true);
  assert.equal(it.offer(messages(1, 2), 60), false);
  assert.deepEqual(takeAll(it), [0, 1]);
  assert.ok(it.isLow);
});

test("gaps are taken by a full buffer, and neighbours become one", () => {
  const it = buffer({ durable: true });
  it.offer(messages(0, 4), 40);
  it.announce(gap(10, 12, 2));
  it.announce(gap(12, 15, 1));
  it.announce(gap(15, 20));
  assert.deepEqual(takeAll(it), [0, 1, 2, 3, [10, 20, null]]);
  it.resume();
  it.announce(gap(20, 21));
  it.announce(gap(30, 31));
  assert.deepEqual(takeAll(it), [[20, 21, null], [30, 31, null]]);
});

test("many items pass through in their order", () => {
  const it = buffer({ durable: true, maxCount: 1000, maxBytes: 1e9 });
  const seen = [];
  for (let n = 0; n < 500; n++) {
    it.offer(messages(n * 3, n * 3 + 3), 30);
    seen.push(it.take().offset, it.take().offset);
  }
  assert.deepEqual([...seen, ...takeAll(it)], Array.from({ length: 1500 }, (_, i) => i));
});

test("a group may step back, and goes on after its newest event", () => {
  const it = buffer({ durable: true, ascends: false });
  it.offer([message(5), message(2)], 10);
  assert.equal(it.lastOffset, 2);
  assert.deepEqual(takeAll(it), [5, 2]);
});
