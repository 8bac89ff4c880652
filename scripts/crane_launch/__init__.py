"""What crane-run and crane share: settings, the state directory, the craneds of one machine.

The rules kept here: one crane-run per state directory; what a run started is on record before it is needed, as
pid with start time, so that a later run stops exactly that and never another's process; every wait has a limit.
"""


class LaunchError(Exception):
    """Said to the operator as it is: what happened, to what, what to do next."""
