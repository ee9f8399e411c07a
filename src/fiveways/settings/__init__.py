"""Settings of the hub: sections with defaults and documentation, sources and validation."""
