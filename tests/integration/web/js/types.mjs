// Lists what the client has at run time, for a test that compares it with the declarations in fiveways.d.ts.

import { PATIENCE, rejected, unique } from "./kit.mjs";

const TEST_KEYS = ["url", "say", "told"];
const STANDARD = new Set(["constructor", "message", "stack", "cause", "length", "name", "prototype"]);

/** Return the names of a value's own members; of symbols only those of the language. */
function ownMembers(value) {
  const symbols = Object.getOwnPropertySymbols(value).map(({ description }) => description);
  const names = Object.getOwnPropertyNames(value).filter((name) => !STANDARD.has(name));
  return [...names, ...symbols.filter((name) => name.startsWith("Symbol.")).map((name) => `[${name}]`)];
}

/** Return the members of a class and of an instance; `has` are declared names that the instance inherits. */
function membersOf(Class, instance, declared) {
  const own = [...ownMembers(Class.prototype), ...ownMembers(instance)];
  const inherited = declared.filter((name) => name in instance || name in Class);
  return { own: own.concat(ownMembers(Class)), inherited };
}

export const types = {
  async declared({ url, declared, ...lib }) {
    const { connect, CallError, ConnectionLost, Refused, Fail, Reply, Job, Subscription, Peer } = lib;
    const peer = await connect(url, { timeout: PATIENCE });
    const name = unique("types");
    const seen = {};
    await peer.register(name, (body, context) => {
      seen.CallContext = Object.keys(context);
      context.progress(1, "note");
      return new Reply(body, [new Uint8Array([1])]);
    });
    const onProgress = (note) => (seen.Progress = Object.keys(note));
    await peer.call(name, 1, { onProgress });
    seen.Result = Object.keys(await peer.callReply(name, 1));
    seen.Discovery = Object.keys(await peer.discover());
    const events = await peer.subscribe(name);
    await peer.publish(name, 1);
    seen.TopicEvent = Object.keys((await events.next()).value);
    await peer.push(name, 1);
    const job = await peer.pull(name);
    await job.done();
    seen.Variables = Object.keys(peer.vars);
    seen.ConnectOptions = (await rejected(connect(url, { unknown: 1 }))).message.split("connect takes ")[1].split(", ");
    peer.addEventListener("state", (event) => (seen.StateChange = Object.keys(event.detail)));
    await peer.close();
    const instances = {
      ...{ CallError: new CallError("lost"), ConnectionLost: new ConnectionLost("x"), Refused: new Refused("x") },
      ...{ Fail: new Fail("x"), Reply: new Reply(1), Job: job, Subscription: events, Peer: peer },
    };
    const classes = {};
    for (const [key, instance] of Object.entries(instances)) {
      classes[key] = membersOf(lib[key], instance, declared[key] ?? []);
    }
    const exported = Object.keys(lib).filter((key) => !TEST_KEYS.includes(key));
    return { exported, classes, interfaces: seen };
  },
};
