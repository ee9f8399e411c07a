// The dashboard: a client of the hub that it came from. It asks about once a second while somebody looks at it.

import { CallError, connect, ConnectionLost, Refused } from "/fiveways.js";
import { Charts } from "./charts.js";
import { byId, say, show } from "./dom.js";
import { Failures } from "./failures.js";
import { duration, reasonText } from "./format.js";
import { History } from "./history.js";
import { Login } from "./login.js";
import { Methods } from "./methods.js";
import { Panels } from "./panels.js";
import { OBSERVED } from "./place.js";
import { Results } from "./results.js";
import { Rights } from "./rights.js";
import { Sessions } from "./sessions.js";
import { Topics } from "./topics.js";

/** Seconds between two looks, and after which one is given up. */
const PACE = 1;
const PATIENCE = 5;
/** Seconds between tries when not even the first connection could be made. */
const PAUSE = 2;

/** What all parts share: the connection, and what it may do. */
const session = { peer: null, rights: new Rights() };
const history = new History();
const charts = new Charts(history, byId("traffic-chart"), byId("latency-chart"));
const panels = new Panels(history);
const sessions = new Sessions(describe);
const failures = new Failures((peer) => sessions.find(peer));
const methods = new Methods(history, session);
const topics = new Topics(history, session);
const results = new Results();
const login = new Login();

// What is asked, and how often.

const denied = (what) => `You are not allowed to call ${what}.`;
let builtIns = [];

/** Ask about one session; null if it has ended, or nothing can be asked now. */
async function describe(peer) {
  try {
    return (await session.peer.call("hub.peers", { peer }, { timeout: PATIENCE })).peers[0];
  } catch (error) {
    if (error instanceof CallError || error instanceof ConnectionLost) return null;
    throw error;
  }
}

async function discover() {
  const found = await session.peer.call("hub.discover", {}, { timeout: PATIENCE });
  const list = (names) => (Array.isArray(names) ? names.filter((each) => typeof each === "string") : []);
  const own = builtIns.filter((each) => session.rights.may("call", each));
  methods.listed([...list(found?.methods), ...own], list(found?.routes), Number.isInteger(found?.more) ? found.more : 0);
}

const QUESTIONS = [
  { name: "hub.rights", every: 15, take: (told) => { session.rights = new Rights(told); login.known(session.rights.identity); } },
  { name: "hub.traffic", every: 1, refuse: (why) => { panels.refuse(why); failures.refuse(why); }, take(told) {
    history.add(told);
    panels.traffic();
    failures.show(told);
    methods.draw();
    topics.draw();
    say(byId("place"), `${location.host}, up ${duration(Math.floor(told.uptime))}`);
    charts.draw();
  } },
  { name: "hub.stats", every: 1, take(told) {
    panels.stats(told);
    if (told.closing) tellClosing();
  } },
  { name: "hub.peers", every: 5, take: (told) => sessions.show(told), refuse: (why) => sessions.refuse(why) },
  { name: "hub.discover", every: 5, ask: discover, fail: (why) => methods.say(why) },
  { name: "hub.results", every: 5, take: (told) => results.show(told), refuse: (why) => results.refuse(why) },
];

async function ask(question, now) {
  const isFree = question.ask !== undefined || question.name === "hub.rights";
  if (now < (question.due ?? 0)) return;
  if (!isFree && !session.rights.may("call", question.name)) {
    question.refuse?.(denied(question.name));
    return;
  }
  question.due = now + question.every - PACE / 2;
  try {
    if (question.ask) await question.ask();
    else question.take(await session.peer.call(question.name, null, { timeout: PATIENCE }));
  } catch (error) {
    // A connection that is lost is told of elsewhere, and a hub that is busy is asked again.
    if (error instanceof CallError && error.reason === "denied") question.refuse?.(denied(question.name));
    else if (error instanceof CallError && question.fail) question.fail(`${question.name} failed: ${reasonText(error.reason)}, ${error.message}`);
    else if (!(error instanceof CallError || error instanceof ConnectionLost)) throw error;
  }
}

let isAsking = false;

async function look() {
  if (isAsking || document.hidden || session.peer?.state !== "open") return;
  isAsking = true;
  try {
    const now = performance.now() / 1000;
    const [rights, ...others] = QUESTIONS;
    await ask(rights, now);
    await Promise.all(others.map((each) => ask(each, now)));
  } finally {
    isAsking = false;
  }
}

function askAllAgain() {
  for (const each of QUESTIONS) each.due = 0;
}

// The connection.

let nextTry = 0;

function tell(state, text) {
  byId("state").className = state;
  say(byId("state-text"), text);
}

function alarm(...said) {
  byId("alert").replaceChildren(...said);
  show(byId("alert"), true);
}

/** Say that the hub ends what it has begun, and takes nothing new. */
function tellClosing() {
  if (!byId("alert").hidden) return;
  tell("lost", "Shutting down");
  alarm("The hub is shutting down: it finishes open calls and accepts no new ones.");
}

/** Say that the connection is lost. Only the sentence is for those who hear the page: a countdown would never end. */
function tellLost(wait) {
  nextTry = performance.now() + wait * 1000;
  tell("lost", "Connection lost");
  document.body.classList.add("stale");
  if (byId("alert").hidden || document.getElementById("countdown") === null) {
    const countdown = Object.assign(document.createElement("span"), { id: "countdown", ariaHidden: "true" });
    alarm("The hub cannot be reached. The page shows the last numbers it received. ", countdown);
  }
  countDown();
}

/** There is nothing to be told of any more. */
function quiet() {
  show(byId("alert"), false);
  byId("alert").replaceChildren();
  document.body.classList.remove("stale");
}

function countDown() {
  const place = document.getElementById("countdown");
  if (place === null || byId("alert").hidden) return;
  const left = Math.ceil((nextTry - performance.now()) / 1000);
  say(place, left > 0 ? `Retrying in ${left} s.` : "Retrying now.");
}

function letIn(isIn) {
  for (const each of ["parts", "main"]) show(byId(each), isIn);
}

async function opened() {
  quiet();
  tell("open", "Connected");
  askAllAgain();
  try {
    const own = await session.peer.discover("hub.");
    builtIns = own.methods.map((each) => (each.startsWith("hub.") ? each : `hub.${each}`));
  } catch (error) {
    if (!(error instanceof CallError || error instanceof ConnectionLost)) throw error;
  }
  await look();
  letIn(true);
}

function followed(event) {
  const { state, error, wait } = event.detail;
  if (state === "open") opened();
  else if (state === "waiting") tellLost(wait ?? 0);
  else if (state === "connecting") tell("lost", "Connecting");
  else if (state === "closed" && error instanceof Refused) refused(error);
}

function refused(error) {
  quiet();
  tell("lost", "Sign-in required");
  letIn(false);
  login.ask(error.message);
}

/** Connect as whoever a token stands for; with none, as anybody. */
async function enter(token) {
  for (;;) {
    tell("connecting", "Connecting");
    try {
      const peer = await connect(OBSERVED, { token, timeout: PATIENCE, backoff: [0.5, 10] });
      session.peer = peer;
      await peer.vars.set("name", "dashboard");
      login.leave();
      peer.addEventListener("state", followed);
      await opened();
      return;
    } catch (error) {
      if (error instanceof Refused) return refused(error);
      if (!(error instanceof ConnectionLost)) throw error;
      tellLost(PAUSE);
      await new Promise((go) => { setTimeout(go, PAUSE * 1000); });
    }
  }
}

document.title = `${location.host} · Fiveways`;
say(byId("place"), location.host);
document.addEventListener("visibilitychange", look);
setInterval(look, PACE * 1000);
setInterval(countDown, 250);
enter(login.token);
