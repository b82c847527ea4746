"""Can a run be made on this machine? Facts are gathered in one place, judged by pure functions, mended by commands."""
