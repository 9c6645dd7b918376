"""Envoy in front of servers, as `docker/` configures it, and the files for Kubernetes."""
