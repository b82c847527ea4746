"""The process round a node: asyncio driver, link pool, metrics endpoint, and the agent that starts peers."""
