"""The registry: subscriptions, durable and versioned."""
