"""
Postgres for the rest of the package: connections, a pool, and what the server says. Nothing here knows a session.

    _values       statements, their parameters and results as Python values
    _connection   the seam: what a connection is, how it fails, and the bounds on its waiting
    _libpq        the real one: libpq, driven by trio. The only module that imports psycopg
    _target       what may be said of a URL
    _server       what a server must be, and the settings of each connection
    _pool         a few connections for many tasks
    _listener     one long connection: LISTEN, and the sign of life of a process
    _errors       what SQLSTATEs mean for what was to be stored

`Env.postgres` returns what opens connections. A simulation's Env returns another one, with a model of a server behind
it, and all but `_libpq` stays as it is.
"""
