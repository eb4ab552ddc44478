"""What cycles keep from step to step.

The latest cycle and the room epoch it knew; cycles of this step so far, the stage of the pass, and cycles that this
pass may still run.
"""

CYCLE, ROOM_EPOCH, RAN, STAGE, LEFT = range(5)
