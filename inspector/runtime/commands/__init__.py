"""What the UI may ask of the worker: frozen dataclasses, carried out in the order sent."""

from __future__ import annotations

from inspector.runtime.commands.beside import (
    CancelDiff,
    CancelSweep,
    DiffSessions,
    DropOverlay,
    LookBeside,
    ResumeSweep,
    ShowOverlay,
    StartSweep,
    ViewDiff,
)
from inspector.runtime.commands.looking import (
    ViewEightBit,
    ViewElement,
    ViewHistograms,
    ViewLines,
    ViewMap,
    ViewMatrix,
    ViewStates,
    ViewValues,
)
from inspector.runtime.commands.moving import (
    CancelSeek,
    CancelWork,
    Follow,
    Pause,
    Play,
    Run,
    RunBack,
    RunToDispatch,
    RunToFinding,
    Seek,
    SetBookmark,
    StepDispatch,
    StepIteration,
    UndoDispatch,
    UndoIteration,
)
from inspector.runtime.commands.opening import (
    FrontLane,
    OpenSource,
    RaceTogether,
    RecoverDevice,
    Shutdown,
    StartRace,
    StopRace,
)
from inspector.runtime.commands.setting import (
    CheckShader,
    RemoveBreakpoint,
    SetBreakpoint,
    SetHyper,
    SetSchedule,
    SetStats,
    SetVariant,
    StartLockstep,
    StartRecording,
    StopLockstep,
    StopRecording,
    TryShader,
    WatchDecay,
)
from inspector.runtime.commands.working import (
    CancelCompare,
    CancelPolicies,
    CancelVerify,
    CancelWhatIf,
    CompareVariants,
    FindValue,
    MeasureCopy,
    SaveReport,
    SaveValues,
    VerifyAll,
    VerifyStep,
    WeighPolicies,
    WhatIf,
)

__all__ = [
    "BESIDE",
    "BESIDE_COMPARISON",
    "MOVES",
    "REPLACES_QUEUED",
    "CancelCompare",
    "CancelDiff",
    "CancelPolicies",
    "CancelSeek",
    "CancelSweep",
    "CancelVerify",
    "CancelWhatIf",
    "CancelWork",
    "CheckShader",
    "Command",
    "CompareVariants",
    "DiffSessions",
    "DropOverlay",
    "FindValue",
    "Follow",
    "FrontLane",
    "LookBeside",
    "MeasureCopy",
    "OpenSource",
    "Pause",
    "Play",
    "RaceTogether",
    "RecoverDevice",
    "RemoveBreakpoint",
    "ResumeSweep",
    "Run",
    "RunBack",
    "RunToDispatch",
    "RunToFinding",
    "SaveReport",
    "SaveValues",
    "Seek",
    "SetBookmark",
    "SetBreakpoint",
    "SetHyper",
    "SetSchedule",
    "SetStats",
    "SetVariant",
    "ShowOverlay",
    "Shutdown",
    "StartLockstep",
    "StartRace",
    "StartRecording",
    "StartSweep",
    "StepDispatch",
    "StepIteration",
    "StopLockstep",
    "StopRace",
    "StopRecording",
    "TryShader",
    "UndoDispatch",
    "UndoIteration",
    "VerifyAll",
    "VerifyStep",
    "ViewDiff",
    "ViewEightBit",
    "ViewElement",
    "ViewHistograms",
    "ViewLines",
    "ViewMap",
    "ViewMatrix",
    "ViewStates",
    "ViewValues",
    "WatchDecay",
    "WeighPolicies",
    "WhatIf",
]

Command = (
    StepDispatch
    | StepIteration
    | Run
    | RunToDispatch
    | RunToFinding
    | RunBack
    | Pause
    | UndoDispatch
    | UndoIteration
    | Seek
    | CancelSeek
    | Play
    | SetBookmark
    | Follow
    | SetHyper
    | SetSchedule
    | SetVariant
    | SetStats
    | OpenSource
    | ViewMap
    | ViewValues
    | ViewHistograms
    | ViewElement
    | ViewMatrix
    | ViewStates
    | ViewLines
    | FindValue
    | SaveValues
    | CancelWork
    | MeasureCopy
    | CompareVariants
    | CancelCompare
    | StartLockstep
    | StopLockstep
    | ViewEightBit
    | WatchDecay
    | StartRecording
    | StopRecording
    | SetBreakpoint
    | RemoveBreakpoint
    | ShowOverlay
    | DropOverlay
    | DiffSessions
    | CancelDiff
    | ViewDiff
    | WhatIf
    | CancelWhatIf
    | VerifyStep
    | VerifyAll
    | CancelVerify
    | WeighPolicies
    | CancelPolicies
    | SaveReport
    | CheckShader
    | TryShader
    | LookBeside
    | StartRace
    | StopRace
    | FrontLane
    | RaceTogether
    | ResumeSweep
    | StartSweep
    | CancelSweep
    | RecoverDevice
    | Shutdown
)

MOVES = (StepDispatch, StepIteration, UndoDispatch, UndoIteration)
"""What is asked for with a key, be it held down: each is carried out, and has its answer."""
REPLACES_QUEUED = (
    Seek,
    ViewMap,
    ViewValues,
    ViewHistograms,
    ViewElement,
    ViewMatrix,
    ViewStates,
    ViewLines,
    FindValue,
    ViewEightBit,
    ViewDiff,
    LookBeside,
    MeasureCopy,
    VerifyStep,
    CheckShader,
)
"""Of these only the newest in the queue matters; all others are each carried out."""

BESIDE = (
    ShowOverlay,
    DropOverlay,
    DiffSessions,
    CancelDiff,
    ViewDiff,
    ViewLines,
    ResumeSweep,
    StartSweep,
    CancelSweep,
    LookBeside,
)
"""About what goes on beside the run, which they leave as it is."""

BESIDE_COMPARISON = (
    ViewMap, ViewValues, ViewHistograms, ViewElement, ViewMatrix, ViewStates, ViewEightBit, SetHyper, SetSchedule,
    SetStats, SetBreakpoint, RemoveBreakpoint, CheckShader,
    *BESIDE,
)  # fmt: skip
"""These are carried out while variants are compared or a what-if runs; any other ends it."""
