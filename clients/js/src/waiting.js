/** What asynchronous code waits for: a flag, a time, the next attempt. */

/** A condition that several may wait for; it stays set until it is cleared. */
export class Flag {
  #wake;
  #promise;

  constructor() {
    this.isSet = false;
    this.clear();
  }

  set() {
    this.isSet = true;
    this.#wake();
  }

  clear() {
    if (this.#promise !== undefined && !this.isSet) return;
    this.isSet = false;
    this.#promise = new Promise((resolve) => (this.#wake = resolve));
  }

  /** Resolves at once while the flag is set. */
  wait() {
    return this.#promise;
  }

  /** True once the flag is set, false if that takes longer. */
  async waitAtMost(seconds) {
    await atMost(this.#promise, seconds);
    return this.isSet;
  }
}

/** Waits for a promise, but no longer than that. */
export async function atMost(promise, seconds) {
  let timer;
  const timeOut = new Promise((resolve) => (timer = setTimeout(resolve, seconds * 1000)));
  try {
    await Promise.race([promise, timeOut]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * How many seconds to wait before each attempt: doubling, with jitter over the upper half, so that clients which lost
 * one site at one moment do not come back at one moment.
 */
export function* backoff(random = Math.random, firstSeconds = 0.1, longestSeconds = 15) {
  for (let ceiling = firstSeconds; ; ceiling = Math.min(ceiling * 2, longestSeconds)) {
    yield ceiling * (0.5 + random() / 2);
  }
}
