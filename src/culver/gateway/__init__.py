"""The gateway: HTTP, WebSocket and Server-Sent Events."""
