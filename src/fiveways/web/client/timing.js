// Clock, timers and promises.

const MAX_TIMER = 2 ** 31 - 1; // milliseconds; a longer timer would fire at once

/** Return a monotonic time in seconds. */
export const now = () => performance.now() / 1000;

export const toMillis = (seconds) => Math.max(1, Math.round(seconds * 1000));

/** Run a function after some seconds; return the timer. */
export const startTimer = (seconds, run) => setTimeout(run, Math.min(seconds * 1000, MAX_TIMER));

export const sleep = (seconds) => new Promise((resolve) => startTimer(seconds, resolve));

/** Return a timeout; TypeError if it is no positive number. */
export function checkedTimeout(value) {
  if (typeof value !== "number" || !(value > 0)) throw new TypeError("a timeout is a positive number of seconds");
  return value;
}

/** Return a promise with its `resolve` and `reject`. Its rejection never counts as unhandled. */
export function createDeferred() {
  const deferred = {};
  deferred.promise = new Promise((resolve, reject) => Object.assign(deferred, { resolve, reject }));
  deferred.promise.catch(() => {});
  return deferred;
}
