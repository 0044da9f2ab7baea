"""The endpoint `/v1/ws`, for any ASGI server: `websocket_endpoint` serves a connection through `message_sockets`."""
