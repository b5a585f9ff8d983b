"""
Servers on 127.0.0.1 that stand for the providers of models.

Each is as strict as the real API: what its official SDK's types do not have is refused, in the API's own form of an
error. What it answers is a script: whole bodies, streams played from files in any pieces, errors, and broken
connections.
"""
