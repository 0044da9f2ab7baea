"""The executors that a cluster gives the query: how many tasks they run at a time, and how many the slices need.

    slices 3, executors of one core      wanted 3, there are 1   -->  ask the cluster for 3
    slices 2                             wanted 2, there are 3   -->  let go of one that has no task this instant

Spark's own rule (dynamic allocation) asks for an executor when a task has waited for a second, and lets go of one
that had no task for some time. Batches take milliseconds and their tasks go to any executor, so the result of that
rule has little to do with slices. Culver turns it off (`session_settings`) and names the number itself.
"""

from pyspark import SparkContext


def executors_for(slices: int, tasks_each: int) -> int:
    """How many executors it takes to run a task for every slice at the same time."""
    return max(1, -(-slices // tasks_each))


class Executors:
    """The executors of one session on a cluster. For one thread, which waits for the cluster's answers."""

    def __init__(self, context: SparkContext) -> None:
        configuration = context.getConf()
        cores = int(configuration.get("spark.executor.cores", "1") or 1)
        self._tasks_each = max(1, cores // int(configuration.get("spark.task.cpus", "1") or 1))
        self._context = context._jsc.sc()
        self._profile = self._context.resourceProfileManager().defaultResourceProfile()
        assert context._jvm is not None
        self._scala = context._jvm.PythonUtils

    def cores(self) -> int:
        """How many tasks the present executors can run at the same time."""
        return int(self._context.maxNumConcurrentTasks(self._profile))

    def fit(self, slices: int) -> None:
        """Ask for missing executors, and let go of idle ones that are too many. Call it again and again: a cluster
        gives what it has, and may have more later."""
        wanted, present = executors_for(slices, self._tasks_each), self._present()
        if len(present) == wanted:
            return
        # Repeated until it is true: a Master that was started again remembers the query, but not this request.
        self._context.requestTotalExecutors(wanted, 0, self._scala.toScalaMap({}))
        surplus = len(present) - wanted
        for each in reversed(present):
            if surplus > 0 and self._let_go(each):
                surplus -= 1

    def _present(self) -> list[str]:
        """The active executors, oldest first, without those that are being stopped."""
        identifiers = self._context.getExecutorIds().mkString(" ").split()
        backend = self._context.schedulerBackend()
        return sorted(filter(backend.isExecutorActive, identifiers), key=lambda each: (len(each), each))

    def _let_go(self, identifier: str) -> bool:
        """Stop an executor if it has no task; returns whether that is so. It gets no more tasks, so none has to run
        again."""
        adjust_target, count_failures, force = False, False, False
        stopped = self._context.schedulerBackend().killExecutors(
            self._scala.toSeq([identifier]), adjust_target, count_failures, force
        )
        return bool(stopped.nonEmpty())
