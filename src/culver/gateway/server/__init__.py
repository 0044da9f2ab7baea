"""The gateway's own server: uvicorn with protocols that are bounded against hostile clients."""
