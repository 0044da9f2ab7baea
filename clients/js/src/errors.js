/**
 * The errors of the client. `code` is for programs and stays the same, `message` is for people.
 *
 *     CulverError
 *      ├─ InvalidEvent, InvalidRequest   an argument is wrong; nothing was sent
 *      ├─ ConnectionFailed               the site cannot be reached, or the connection broke before the answer
 *      ├─ RequestRefused                 the site said no
 *      ├─ Conflict                       a durable subscription exists with another filter
 *      └─ ClientClosed                   the client or the stream is closed
 */

export class CulverError extends Error {
  /** `field` names the part of the request that the error is about, or is null. */
  constructor(code, message, { field = null, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.field = field;
  }
}

export class InvalidEvent extends CulverError {
  constructor(message, options) {
    super("invalid_event", message, options);
  }
}

export class InvalidRequest extends CulverError {
  constructor(message, options) {
    super("invalid_request", message, options);
  }
}

export class ConnectionFailed extends CulverError {
  /** `status` is that of an answer that a site does not give, such as a proxy's 502; null if there was no answer. */
  constructor(message, { status = null, ...options } = {}) {
    super("connection_failed", message, options);
    this.status = status;
  }
}

export class RequestRefused extends CulverError {
  /** `problem` is the site's problem document, whose `code`, `detail` and `field` the error takes over. */
  constructor(problem, status = problem.status ?? null) {
    const message = problem.detail || problem.title || "the site refused the request";
    super(String(problem.code), String(message), { field: typeof problem.field === "string" ? problem.field : null });
    this.status = status;
    this.retryable = problem.retryable === true;
    this.problem = problem;
  }
}

export class Conflict extends CulverError {
  constructor(message, options) {
    super("conflict", message, options);
  }
}

export class ClientClosed extends CulverError {
  constructor(what = "the client") {
    super("closed", `${what} is closed`);
  }
}
