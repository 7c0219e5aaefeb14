"""Trains one of two models on the strategy that TF_CONFIG makes, and writes the seconds of each block of steps."""

import json
import os
import sys
import time

import numpy as np
import tensorflow as tf
from turns import Turns

model, seconds, result = sys.argv[1], float(sys.argv[2]), sys.argv[3]
GLOBAL_BATCH = 256
WARM_UP, BLOCK = 10, 5

several = bool(os.environ.get("TF_CONFIG"))
strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
workers = strategy.num_replicas_in_sync
chief = not several or strategy.cluster_resolver.task_id == 0


def weights(*shape: int) -> tf.Variable:
    scale = float(np.prod(shape[:-1])) ** -0.5
    return tf.Variable(tf.random.stateless_normal(shape, (1, len(shape))) * scale)


class Convolutions(tf.Module):
    """MNIST-shaped, 225,000 weights."""

    def __init__(self) -> None:
        self.first, self.second = weights(3, 3, 1, 32), weights(3, 3, 32, 64)
        self.third, self.last = weights(1600, 128), weights(128, 10)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, self.first, 1, "VALID")), 2, 2, "VALID")
        x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, self.second, 1, "VALID")), 2, 2, "VALID")
        return tf.nn.relu(tf.reshape(x, (-1, 1600)) @ self.third) @ self.last


class Layers(tf.Module):
    """Dense, 5.8 million weights: 23 MB of gradients in each step."""

    def __init__(self) -> None:
        self.first, self.second, self.third = weights(784, 2048), weights(2048, 2048), weights(2048, 10)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.nn.relu(tf.reshape(x, (-1, 784)) @ self.first)
        return tf.nn.relu(x @ self.second) @ self.third


with strategy.scope():
    net = {"cnn": Convolutions, "mlp": Layers}[model]()


@tf.function
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    def one(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, net(x)))
        gradients = tape.gradient(loss, net.trainable_variables)
        context = tf.distribute.get_replica_context()
        for variable, gradient in zip(net.trainable_variables, context.all_reduce("MEAN", gradients), strict=True):
            variable.assign_sub(0.01 * gradient)
        return loss

    return strategy.reduce("MEAN", strategy.run(one, (x, y)), axis=None)


count = GLOBAL_BATCH // workers
x = tf.constant(np.random.default_rng(1).normal(size=(count, 28, 28, 1)).astype("float32"))
y = tf.constant(np.arange(count) % 10)
for _ in range(WARM_UP):
    step(x, y)


@tf.function
def agreed(over: tf.Tensor) -> tf.Tensor:
    """Return whether the first worker's time is over, so that all exit after the same step."""
    return strategy.reduce("SUM", strategy.run(lambda: over), axis=None)


turns, began, blocks = Turns(), time.perf_counter(), []
while True:
    with turns.next():
        before = time.perf_counter()
        for _ in range(BLOCK):
            loss = step(x, y)
        float(loss)
        blocks.append(time.perf_counter() - before)
    if float(agreed(tf.constant(float(chief and time.perf_counter() - began > seconds)))):
        break
turns.leave()
if chief:
    with open(result + ".new", "w") as file:
        json.dump(blocks, file)
    os.rename(result + ".new", result)
