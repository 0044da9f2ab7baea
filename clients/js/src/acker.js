/** Acknowledges in the background: always the newest offset that is done, one request at a time. */

import { ConnectionFailed } from "./errors.js";
import { Flag } from "./waiting.js";

const PAUSE_SECONDS = 0.1;

/**
 * An acknowledgement covers all before it, so while one is under way only the newest wish is remembered; a reader of
 * small events is not slowed to one round trip each. `acknowledge(item)` sends one and notes its success. Items have an
 * `order` that ascends, which the offsets of a group need not do. `attached` is a flag that says when, after a failure,
 * another try makes sense.
 */
export class Acker {
  #acknowledge;
  #attached;
  #wanted = { order: -1 };
  #done = -1;
  #working = false;
  #idle = new Flag();
  #closing = new Flag();

  constructor(acknowledge, attached) {
    this.#acknowledge = acknowledge;
    this.#attached = attached;
    this.#idle.set();
  }

  /** Everything up to an item is done with. Returns at once. */
  want(item) {
    if (item.order > this.#wanted.order) this.#wanted = item;
    if (!this.#working) this.#work();
  }

  note({ order }) {
    this.#done = Math.max(this.#done, order);
  }

  /** Gives what is not acknowledged yet a last chance. What does not get through is delivered again. */
  async flush(seconds) {
    this.#closing.set();
    await this.#idle.waitAtMost(seconds);
  }

  async #work() {
    this.#working = true;
    this.#idle.clear();
    while (this.#done < this.#wanted.order) {
      const item = this.#wanted;
      const isLast = this.#closing.isSet;
      try {
        await this.#acknowledge(item);
      } catch (error) {
        if (!(error instanceof ConnectionFailed)) {
          // A subscription that was removed has nothing left to acknowledge.
          if (error.code !== "not_found") console.warn(`culver: acknowledging ${item.offset}: ${error.message}`);
          this.note(item); // asking again would be refused again
        } else if (isLast) {
          break;
        } else {
          await this.#closing.waitAtMost(PAUSE_SECONDS);
          await Promise.race([this.#attached.wait(), this.#closing.wait()]);
        }
      }
    }
    this.#working = false;
    this.#idle.set();
  }
}
