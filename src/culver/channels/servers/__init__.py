"""Redis servers: the connections to them, the program that runs them, and the pool that starts and stops them.

    redis_address     the URL of a server, and how a program identifies itself there
    tls_files         the certificates of connections over TLS
    redis_link        one connection, which never waits to send and hands pushes over in batches
    redis_failures    what goes wrong on a connection, as errors of ours
    server_program    where the program of a server is found
    server_pool       the protocol of a provisioner, and the one for servers that others run
    local_servers     the provisioner that runs server processes on this machine

Nothing outside this package sees a socket, a process or an error of a library.
"""
