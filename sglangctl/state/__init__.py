"""Our own files on the host: paths, configuration, releases, starts, journal format, locks."""
