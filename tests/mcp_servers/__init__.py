"""MCP servers, made with the official package, for the tests of `McpToolset`: in process, over stdio, over HTTP."""
