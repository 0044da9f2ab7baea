/**
 * The messages and gaps that a subscription has received and its reader has not taken yet.
 *
 *     offer ──> [ message | message | gap | message ] ──> take
 *                oldest                       newest
 *
 * A full buffer of a durable subscription refuses more: the site keeps it. That of a live one drops, and puts one gap
 * in place of what it dropped, until half of it is free again. The order is that of the log, without doubles; that
 * of a group is the site's.
 */
export class Buffer {
  #items = []; // [item, size]; taken from `#first` on
  #first = 0;
  #bytes = 0;
  #durable;
  #ascends;
  #maxCount;
  #maxBytes;
  #overflowed = false;
  #dropping = null; // the newest item, while it is a gap that can still grow

  constructor({ durable, ascends = true, maxCount, maxBytes }) {
    this.#durable = durable;
    this.#ascends = ascends;
    this.#maxCount = maxCount;
    this.#maxBytes = maxBytes;
    /** The offset of the newest message that was let in or dropped. */
    this.lastOffset = -1;
  }

  get #count() {
    return this.#items.length - this.#first;
  }

  get isFull() {
    return this.#count >= this.#maxCount || this.#bytes >= this.#maxBytes;
  }

  get isLow() {
    return this.#count <= this.#maxCount / 2 && this.#bytes <= this.#maxBytes / 2;
  }

  /**
   * Takes messages in, in their order; where offsets ascend, those at or below the last one are redeliveries and
   * ignored. False once the buffer of a durable subscription is full: the rest was not taken, and nothing will be until
   * `resume`, or there would be a hole.
   */
  offer(messages, size) {
    const share = Math.floor(size / Math.max(1, messages.length));
    for (const message of messages) {
      if (this.#ascends && message.offset <= this.lastOffset) continue;
      if (this.#overflowed && this.isLow && !this.#durable) {
        this.#overflowed = false;
        this.#dropping = null;
      }
      if (this.#overflowed || this.isFull) {
        this.#overflowed = true;
        if (this.#durable) return false;
        this.#drop(message);
      } else {
        this.#append(message, share);
      }
      this.lastOffset = message.offset;
    }
    if (this.#durable && this.isFull) this.#overflowed = true;
    return !(this.#durable && this.#overflowed);
  }

  /** What follows `lastOffset` comes next: a durable subscription takes it again. */
  resume() {
    if (this.#durable) this.#overflowed = false;
  }

  /** Gaps are always taken, since they must not get lost. Neighbours in a full buffer become one, so it stays bounded. */
  announce(gap) {
    const newest = this.#count > 0 ? this.#items[this.#items.length - 1][0] : null;
    if (newest?.type === "gap" && (this.#overflowed || this.isFull)) {
      this.#dropping = merge(newest, gap);
      this.#items[this.#items.length - 1] = [this.#dropping, 0];
    } else {
      this.#dropping = null;
      this.#append(gap, 0);
    }
  }

  /** The oldest item, or null. */
  take() {
    if (this.#count === 0) return null;
    const [item, size] = this.#items[this.#first];
    this.#items[this.#first++] = undefined;
    if (this.#first * 2 > this.#items.length) {
      this.#items.splice(0, this.#first); // each item moves about once in its life
      this.#first = 0;
    }
    this.#bytes -= size;
    if (item === this.#dropping) this.#dropping = null;
    return item;
  }

  #drop({ subscription, offset }) {
    const gap = { type: "gap", subscription, start: offset, end: offset + 1, dropped: 1, reason: "overflow" };
    if (this.#dropping === null) {
      this.#dropping = gap;
      this.#append(gap, 0);
    } else {
      this.#dropping = merge(this.#dropping, gap);
      this.#items[this.#items.length - 1] = [this.#dropping, 0];
    }
  }

  #append(item, size) {
    this.#items.push([item, size]);
    this.#bytes += size;
  }
}

function merge(first, second) {
  return {
    ...second,
    start: Math.min(first.start, second.start),
    end: Math.max(first.end, second.end),
    dropped: first.dropped === null || second.dropped === null ? null : first.dropped + second.dropped,
  };
}
