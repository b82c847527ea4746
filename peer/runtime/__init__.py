"""The process round a node: asyncio driver, pool of connections, metrics endpoint, and the agent that starts peers."""
