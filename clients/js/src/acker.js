/** Acknowledges in the background: always the newest offset that is done, one request at a time. */

import { ConnectionFailed } from "./errors.js";
import { Flag } from "./waiting.js";

const PAUSE_SECONDS = 0.1;

/**
 * An acknowledgement covers all before it, so while one is under way only the newest wish is remembered; a reader of
 * small events is not slowed to one round trip each. `acknowledge(offset)` sends one and notes its success;
 * `attached` is a flag that says when, after a failure, another try makes sense.
 */
export class Acker {
  #acknowledge;
  #attached;
  #wanted = -1;
  #done = -1;
  #working = false;
  #idle = new Flag();
  #closing = new Flag();

  constructor(acknowledge, attached) {
    this.#acknowledge = acknowledge;
    this.#attached = attached;
    this.#idle.set();
  }

  /** Everything up to `offset` is done with. Returns at once. */
  want(offset) {
    this.#wanted = Math.max(this.#wanted, offset);
    if (!this.#working) this.#work();
  }

  note(offset) {
    this.#done = Math.max(this.#done, offset);
  }

  /** Gives what is not acknowledged yet a last chance. What does not get through is delivered again. */
  async flush(seconds) {
    this.#closing.set();
    await this.#idle.waitAtMost(seconds);
  }

  async #work() {
    this.#working = true;
    this.#idle.clear();
    while (this.#done < this.#wanted) {
      const offset = this.#wanted;
      const isLast = this.#closing.isSet;
      try {
        await this.#acknowledge(offset);
      } catch (error) {
        if (!(error instanceof ConnectionFailed)) {
          // A subscription that was removed has nothing left to acknowledge.
          if (error.code !== "not_found") console.warn(`culver: acknowledging ${offset}: ${error.message}`);
          this.note(offset); // asking again would be refused again
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
