//! Nothing but its tests: what streams cost in memory.
