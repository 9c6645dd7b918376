"""The code that the client and the server share: errors, namespaces, tools, folders of backups, output of commands.

The server may import this and the stubs in `mnemon.v1`, but no other part of the client. Programs find the public names
in `mnemon`.
"""
