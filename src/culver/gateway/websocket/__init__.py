"""The WebSocket endpoint at /v1/ws."""
