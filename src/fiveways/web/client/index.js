// A Fiveways client for browsers and Node: one connection to a hub, and the same methods in every protocol.
//
//     import { connect } from "/fiveways.js";
//     const peer = await connect("lrpm+ws://localhost:7500");
//     console.log(await peer.call("math.add", [2, 3]));
//
// It has no dependencies and needs no `eval`, so it works under a strict content security policy. Times are seconds
// everywhere, as in the Python client.

export { CallError, ConnectionLost, Refused, Fail, Reply } from "./errors.js";
export { Job } from "./job.js";
export { Subscription } from "./subscriptions.js";
export { Peer } from "./peer.js";
export { connect } from "./connect.js";
export { wire } from "./wire.js";
