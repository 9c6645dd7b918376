"""HTTP/1.1 on a port of its own: Connect, gRPC-Web and JSON for what gRPC serves, through the same steps."""
