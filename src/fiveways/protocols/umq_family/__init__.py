"""What the two dialects of UMQ, `umq` and `umq36`, have in common. Not a protocol of its own."""
