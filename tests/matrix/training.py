"""A small real training with one fault: ten steps, a checkpoint at every fourth.

Runs as any role of a mirrored gang, or of one with parameter servers. Parameters of the run are the faulty replica,
the phase and the fault: `victim`, `phase`, `fault`. The fault is injected once in a run. Replicas and the test
synchronize by files in the output folder: the phase is `reached`, the fault is `injecting` and then `injected`, and
the remaining replicas may `go` on.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import tensorflow as tf
from tensorflow.python.eager import context

STEPS, EVERY = 10, 4
MID_EPOCH = 6
# The supervisor has to notice a silent replica before TensorFlow does, however busy the machine. TensorFlow's messages
# are covered by tests/cascades; if both replicas print them, the silent one cannot be told apart.
HEARTBEAT_MS = 60_000

HERE = Path(os.environ["OUTPUT_DIR"])
SAVED = Path(os.environ["CHECKPOINT_DIR"])
TASK = {name: os.environ[name.upper()] for name in ("victim", "phase", "fault")}
ROLE = os.environ["DRUMLINE_ROLE"]
ME = f"{ROLE}.{os.environ['DRUMLINE_INDEX']}"
IS_VICTIM = TASK["victim"] == ME
IS_AGAIN = (HERE / "injecting").exists()  # the fault was injected before this process started
SERVES = ROLE in ("worker", "ps") and "ps" in json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
FROM_OUTSIDE = ("KILL", "STOP", "network cut", "supervisor KILL")


def reach(phase: str) -> None:
    """Enter a phase; if the fault belongs to it and was not injected before, wait until it is."""
    if TASK["phase"] != phase:
        return
    # For servers and the evaluator, which take no steps, the chief's phase counts.
    if IS_VICTIM or (ROLE == "chief" and phase != "before rendezvous"):
        (HERE / "reached").touch()
    if IS_VICTIM:
        inject()
    else:
        wait_for((HERE / "injected").exists)


def inject() -> None:
    """Inject the fault into this process, or wait until it is injected from outside."""
    fault = TASK["fault"]
    if fault in FROM_OUTSIDE:
        wait_for(lambda: IS_AGAIN or (HERE / "go").exists())
        return
    try:
        (HERE / "injecting").touch(exist_ok=False)
    except FileExistsError:
        return  # it was injected before
    if fault.startswith("exit "):
        sys.stdout.flush()
        os._exit(int(fault.removeprefix("exit ")))
    if fault == "OOM":
        hoard = []
        while True:
            hoard.append(bytearray(os.urandom(1)) * (16 << 20))
    if fault == "disk full":
        with (SAVED / "filler").open("wb") as filler:
            (SAVED / "filler").unlink()  # the space is freed when this process ends
            while True:
                filler.write(bytes(1 << 20))


def inject_later() -> None:
    """Inject the fault into a server or evaluator when the chief has reached the phase, or has ended."""
    wait_for((HERE / "reached").exists)
    try:
        inject()
    except OSError:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # as a failing script exits; the main thread only serves


def serve() -> None:
    config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(config.cluster_spec(), job_name=config.task_type, task_index=config.task_id)
    server.join()


def evaluate() -> None:
    """Read each checkpoint until the last, and write a score for it."""
    seen = 0
    while seen < STEPS:
        step = saved_step()
        if step > seen:
            seen = step
            (SAVED / "score").write_text(str(step))
        time.sleep(0.01)
    if IS_VICTIM and TASK["phase"] == "after success":
        threading.Event().wait()


def saved_step() -> int:
    """Return the step of the last complete checkpoint."""
    latest = SAVED / "latest"
    return int(latest.read_text()) if latest.exists() else 0


def commit(number: int) -> None:
    """Make a checkpoint the latest one."""
    part = SAVED / "latest.part"
    part.write_text(str(number))
    part.replace(SAVED / "latest")
    print(f"saved {number}", flush=True)


def wait_for(is_true) -> None:
    while not is_true():
        time.sleep(0.01)


def train(strategy: tf.distribute.Strategy, run_step, meet) -> None:
    """Take the steps; all write their parts of a checkpoint, and when all have, the chief commits it."""
    with strategy.scope():
        weight = tf.Variable(0.0)
    step = tf.Variable(0)
    parts = {"step": tf.train.Checkpoint(step=step), "weight": tf.train.Checkpoint(weight=weight)}
    done = saved_step()
    if done:
        for name, part in parts.items():
            part.read(f"{SAVED}/{done}/chief.0-{name}").assert_existing_objects_matched()
        assert int(step) == done, (int(step), done)
    learn = run_step(weight)
    reach("first step")
    for number in range(done + 1, STEPS + 1):
        loss = float(learn())
        print(f"step {number} loss {loss:.4f}", flush=True)
        step.assign(number)
        if number == MID_EPOCH:
            reach("mid-epoch")
        if number % EVERY == 0 or number == STEPS:
            parts["step"].write(f"{SAVED}/{number}/{ME}-step")
            if number == 2 * EVERY:
                reach("checkpoint")  # half of it is written
            parts["weight"].write(f"{SAVED}/{number}/{ME}-weight")
            meet(number)


def configure_heartbeats() -> None:
    """Configure the coordination service as the strategy does, with a longer heartbeat timeout."""
    jobs = [context.coordination_config_pb2.CoordinatedJob(name=role, num_tasks=1) for role in ("chief", "worker")]
    context.context().configure_coordination_service(
        "standalone", "/job:chief/replica:0/task:0", heartbeat_timeout_in_ms=HEARTBEAT_MS, coordinated_jobs=jobs
    )


def mirrored() -> None:
    configure_heartbeats()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the strategy ignores it

    @tf.function
    def wait_for_all():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", 1.0))

    def meet(number):
        """Commit a checkpoint when all have written it; no replica continues, or exits, before."""
        wait_for_all()
        (HERE / f"met-{number}-{ME}").touch()
        if ROLE == "chief":
            wait_for(lambda: len(list(HERE.glob(f"met-{number}-*"))) == strategy.num_replicas_in_sync)
            commit(number)
        wait_for(lambda: saved_step() == number)

    def run_step(weight):
        @tf.function
        def learn():
            def one():
                weight.assign_add(0.1)
                return tf.distribute.get_replica_context().all_reduce("MEAN", 1.0 / (1.0 + weight))

            return strategy.reduce("MEAN", strategy.run(one), None)

        return learn

    train(strategy, run_step, meet)
    if IS_VICTIM and TASK["phase"] == "after success":
        inject_later()


def coordinate() -> None:
    config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(config)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    def run_step(weight):
        @tf.function
        def learn():
            return 1.0 / (1.0 + weight.assign_add(0.1, read_value=True))

        return lambda: coordinator.schedule(learn).fetch()

    train(strategy, run_step, commit)


def main() -> None:
    after_success = TASK["phase"] == "after success"
    if IS_VICTIM and after_success:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # or it would end before the fault is injected
    reach("before rendezvous")
    if SERVES or ROLE == "evaluator":
        if IS_VICTIM and not IS_AGAIN:
            threading.Thread(target=inject_later, daemon=True).start()
        serve() if SERVES else evaluate()
    elif "ps" in json.loads(os.environ["TF_CONFIG"])["cluster"]:
        coordinate()
    else:
        mirrored()
    print("done", flush=True)
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's exit handlers may wait for peers that have ended


if __name__ == "__main__":
    main()
