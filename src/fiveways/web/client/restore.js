// Restores variables, registrations and subscriptions on a new session.

import { ConnectionLost } from "./errors.js";

/**
 * Send each request of `groups`, one group after another. An entry has its `request` and may have `onRestored()` and
 * `onRefused(error)`. `abort(error)` gives the session up.
 */
export async function restoreSession(session, groups, requests, timeout, abort) {
  for (const entries of groups) {
    await Promise.all(entries.map((entry) => restoreEntry(session, entry, requests, timeout, abort)));
  }
}

async function restoreEntry(session, entry, requests, timeout, abort) {
  const { id, promise } = requests.send(session.conversation, entry.request, { timeout });
  const ended = session.ended.promise.then((error) => Promise.reject(error));
  try {
    await Promise.race([promise, ended]);
    entry.onRestored?.();
  } catch (error) {
    requests.abandon(id);
    if (error.reason === "timeout") abort(new ConnectionLost("the hub did not respond"));
    if (session.hasEnded) throw await session.ended.promise;
    // A method or a variable that is refused now may be granted on the next connection; a subscription ends.
    entry.onRefused?.(error);
  }
}
