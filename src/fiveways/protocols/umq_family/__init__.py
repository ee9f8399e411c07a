"""Code shared by the two UMQ dialects `umq` and `umq36`. It is not a protocol itself."""
