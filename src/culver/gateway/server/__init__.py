"""The gateway's own server: `gateway_server` runs uvicorn with an `http_protocol` and a `websocket_protocol` that are
bounded against hostile clients."""
