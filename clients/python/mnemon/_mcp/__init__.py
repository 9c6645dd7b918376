"""The MCP server of `mnemon mcp`: the tools of a Mnemon server for any client of the Model Context Protocol."""
