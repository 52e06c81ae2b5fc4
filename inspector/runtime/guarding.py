"""What goes wrong on the worker's thread: one sentence for a person, and the run paused with its state kept."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from inspector.errors import DeviceLostError, InspectorError
from inspector.runtime.current_run import CurrentRun
from inspector.sources.base import EndOfSourceError


def guarded(run: CurrentRun, act: Callable[[], None]) -> None:
    """Do something with the run; raises nothing."""
    try:
        act()
    except DeviceLostError as error:
        run.stale = True
        run.mode = "lost"
        kept = run.engine.checkpoint.finished_steps if run.engine and run.engine.checkpoint else None
        where = f"the state after step {kept:,} is kept" if kept is not None else "it can start again"
        run.say("error", f"{error} What is shown is stale; recover to go on with a new device: {where}.")
    except EndOfSourceError as error:
        run.pause()
        run.say("info", str(error))
    except InspectorError as error:
        run.pause()
        run.say("error", str(error))
    except MemoryError:
        run.pause()
        run.say("error", "This computer ran out of memory: choose a smaller model or a smaller view.")
    except Exception as error:  # noqa: BLE001 - the last owner of an error on this thread
        # A fault of this program: told in one sentence, the details on the console for the report.
        traceback.print_exc(file=sys.stderr)
        run.pause()
        run.say("error", f"Something went wrong here ({type(error).__name__}: {error}); the run is paused.")
