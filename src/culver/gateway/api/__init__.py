"""The frame of the HTTP API: reading requests, encoding answers, and the OpenAPI document."""
