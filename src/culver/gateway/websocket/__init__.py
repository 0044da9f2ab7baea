"""The endpoint `/v1/ws`, for any ASGI server: `websocket_endpoint` serves a connection through a `text_sockets`
socket, and `outbox` bounds what it holds."""
