/** The client of Culver for browsers and Node.js. `connect` is where to begin. */

export { Client, connect } from "./client.js";
export { Stream } from "./stream.js";
export {
  ClientClosed,
  Conflict,
  ConnectionFailed,
  CulverError,
  InvalidEvent,
  InvalidRequest,
  RequestRefused,
} from "./errors.js";
