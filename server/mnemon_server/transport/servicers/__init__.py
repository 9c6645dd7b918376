"""One servicer per service. Each method reads the request, calls the service, and writes the answer."""
