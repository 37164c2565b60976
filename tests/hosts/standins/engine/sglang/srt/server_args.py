"""ServerArgs, as far as a caller needs it to check flags against the installed engine."""

from sglang._standin.flags import ServerArgs as ServerArgs
from sglang._standin.flags import prepare_server_args as prepare_server_args
