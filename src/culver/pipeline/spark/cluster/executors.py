"""The executors that a cluster gives the query: what they can run at a time, and as many of them as slices need.

    slices 3, executors of one core      wanted 3, there are 1   -->  ask the cluster for 3
    slices 2                             wanted 2, there are 3   -->  let go of one that has no task this instant

Spark's own rule (dynamic allocation) asks for an executor when a task has waited for a second, and lets one go that
had no task for some. With batches of milliseconds, whose tasks go to any executor, what comes of that has little to
do with slices. So the rule is set aside (see `session`), and how many there are to be is said outright.
"""

from pyspark import SparkContext


def executors_for(slices: int, tasks_each: int) -> int:
    """So many that every slice has a task of its own at the same time."""
    return max(1, -(-slices // tasks_each))


class Executors:
    """Of one session on a cluster. For one thread, which waits for the cluster's answer."""

    def __init__(self, context: SparkContext) -> None:
        configuration = context.getConf()
        cores = int(configuration.get("spark.executor.cores", "1") or 1)
        self._tasks_each = max(1, cores // int(configuration.get("spark.task.cpus", "1") or 1))
        self._context = context._jsc.sc()
        self._profile = self._context.resourceProfileManager().defaultResourceProfile()
        assert context._jvm is not None
        self._scala = context._jvm.PythonUtils

    def cores(self) -> int:
        """How many tasks the executors that are there can run at the same time."""
        return int(self._context.maxNumConcurrentTasks(self._profile))

    def fit(self, slices: int) -> None:
        """Ask for what is missing, and let go of what is too much and idle; call it again and again. A cluster that
        has no more gives what it has."""
        wanted, present = executors_for(slices, self._tasks_each), self._present()
        if len(present) == wanted:
            return
        # Said again until it is true: a Master that was started again remembers the query, but not this.
        self._context.requestTotalExecutors(wanted, 0, self._scala.toScalaMap({}))
        surplus = len(present) - wanted
        for each in reversed(present):
            if surplus > 0 and self._let_go(each):
                surplus -= 1

    def _present(self) -> list[str]:
        """The oldest first, without those that are on their way out."""
        identifiers = self._context.getExecutorIds().mkString(" ").split()
        backend = self._context.schedulerBackend()
        return sorted(filter(backend.isExecutorActive, identifiers), key=lambda each: (len(each), each))

    def _let_go(self, identifier: str) -> bool:
        """Whether it had no task and is being stopped; it gets none any more, so that none has to be run again."""
        adjust_target, count_failures, force = False, False, False
        stopped = self._context.schedulerBackend().killExecutors(
            self._scala.toSeq([identifier]), adjust_target, count_failures, force
        )
        return bool(stopped.nonEmpty())
