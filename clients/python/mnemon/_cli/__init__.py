"""The command line over the client; needs the extra `mnemon-client[cli]`."""
