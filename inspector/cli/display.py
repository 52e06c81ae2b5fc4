"""Whether a window can be opened: Qt aborts the process where its display does not answer."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

TIMEOUT_S = 3.0
AGAIN_S = 0.3
X11_SOCKETS = "/tmp/.X11-unix"
X11_PORT = 6000
ADVICE = "use 'inspector run' and 'inspector screenshot', or set DISPLAY"


def display_problem() -> str:
    """Why no window can be opened here, in one sentence; "" where one can."""
    platform = os.environ.get("QT_QPA_PLATFORM", "").split(":")[0]
    if not sys.platform.startswith("linux") or platform not in ("", "xcb", "wayland"):
        return ""
    checks: dict[str, tuple[str, Callable[[str], bool]]] = {
        "xcb": ("DISPLAY", x11_answers),
        "wayland": ("WAYLAND_DISPLAY", wayland_answers),
    }
    silent: list[str] = []
    for kind, (variable, answers) in checks.items():
        value = os.environ.get(variable)
        if value and platform in ("", kind):
            if answers(value):
                return ""
            # A server that has just begun may reset once its first caller has left: it is asked again.
            time.sleep(AGAIN_S)
            if answers(value):
                return ""
            silent.append(f"{variable}={value}")
    if silent:
        verb = "does" if len(silent) == 1 else "do"
        return f"The display {' and '.join(silent)} {verb} not answer: {ADVICE} to one that does."
    return f"There is no display to open a window on: {ADVICE}."


def x11_answers(display: str) -> bool:
    """True where an X server listens on a display such as :0, unix:1.0 or host:10, and lets this user in."""
    host, colon, rest = display.rpartition(":")
    number = rest.split(".")[0]
    if not colon or not number.isdecimal():
        return False
    host = host.rpartition("/")[2]
    local = host in ("", "unix")
    path = f"{X11_SOCKETS}/X{number}"
    reached = local and (_unix_answers(f"\0{path}") or _unix_answers(path))
    if not (reached or _tcp_answers("localhost" if local else host, X11_PORT + int(number))):
        return False
    return _lets_in(display)


def wayland_answers(display: str) -> bool:
    """True where a compositor listens on this socket, a path or a name in XDG_RUNTIME_DIR."""
    return _unix_answers(str(Path(os.environ.get("XDG_RUNTIME_DIR", "")) / display))


def _unix_answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(TIMEOUT_S)
        try:
            end.connect(path)
        except OSError:
            return False
        return True


def _tcp_answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), TIMEOUT_S).close()
    except (OSError, OverflowError, UnicodeError):
        return False
    return True


def _lets_in(display: str) -> bool:
    """Greet the server as Qt will, with this user's key; True where the library for that is missing."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
        connect, failed, leave = xcb.xcb_connect, xcb.xcb_connection_has_error, xcb.xcb_disconnect
    except (OSError, AttributeError):
        return True
    connect.restype = ctypes.c_void_p
    connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    failed.argtypes = leave.argtypes = [ctypes.c_void_p]
    connection = connect(os.fsencode(display), None)
    error = failed(connection)
    leave(connection)
    return not error
