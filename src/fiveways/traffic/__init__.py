"""Traffic generator for a running hub: callees and callers in all protocols, and misbehaving peers."""
