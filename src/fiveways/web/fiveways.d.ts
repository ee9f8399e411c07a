// Types of fiveways.js, a Fiveways client for browsers and Node. Times are seconds.

/** Why a call failed. Treat unknown words like "lost": a later version of the hub may add some. */
export type Reason =
  | "no_such_method"
  | "no_such_callback"
  | "unavailable"
  | "denied"
  | "bad_arguments"
  | "overloaded"
  | "too_large"
  | "timeout"
  | "lost"
  | "cancelled"
  | "raised";

/** Whether the method of a failed call ran. */
export type Ran = "no" | "unknown" | "yes";

/** "waiting" is waiting for the next attempt to connect. */
export type State = "connecting" | "open" | "waiting" | "closed";

/** Bytes that can be sent as a value. Received bytes are always a Uint8Array. */
export type Bytes = ArrayBufferView | ArrayBuffer;

export interface ConnectOptions {
  /** The token for authentication. */
  token?: string;
  /** Authentication with a secret that is never sent, together with `secret`; LRPM only. */
  identity?: string;
  secret?: string;
  /** Timeout of calls that set none; 30 by default. */
  timeout?: number;
  /** Open a new connection when one is lost; true by default. */
  reconnect?: boolean;
  /** Longest wait before the first reconnect, which doubles with each attempt, and its upper bound; [0.1, 5]. */
  backoff?: [first: number, longest: number];
  /** Time of silence after which the client sends a keepalive; 20 by default. */
  keepalive?: number;
  /** Timeout for opening a connection; 10 by default. */
  openTimeout?: number;
  /** The longest message in bytes, as in the hub's `[limits]`; 1048576 by default. */
  maxText?: number;
  /** An implementation for environments that have no global WebSocket. */
  WebSocket?: new (url: string, protocols?: string[]) => any;
  /** An implementation for environments that have no global fetch. */
  fetch?: (url: string, init: any) => Promise<any>;
}

/** A progress note of a running call. */
export interface Progress {
  value: any;
  text: string;
  kind: string;
  code: string;
}

export interface CallOptions {
  timeout?: number;
  attachments?: Bytes[];
  onProgress?: (note: Progress) => void;
  /** Cancels the call. */
  signal?: AbortSignal;
  /** Repeat the call if the connection is lost before the response arrives. */
  idempotent?: boolean;
}

export interface StreamOptions {
  timeout?: number;
  attachments?: Bytes[];
  /** Cancels the call. */
  signal?: AbortSignal;
  /** Parts that may wait to be read before the call is cancelled; 10000 by default. */
  maxWaiting?: number;
}

export interface PublishOptions {
  /** Later subscribers get the value too, as their first event. */
  retain?: boolean;
  attachments?: Bytes[];
  timeout?: number;
}

export interface SubscribeOptions {
  /** Policy of the hub for a slow consumer; by default that of the topic. */
  whenFull?: "" | "skip" | "close" | "unsubscribe" | "block";
  /** Events that may wait to be read before the oldest is dropped; 1000 by default. */
  maxWaiting?: number;
}

export interface RegisterOptions {
  /** Documentation that `discover` returns. */
  doc?: string;
  /** "server" streams the result; by default generator functions do. */
  kind?: "unary" | "server";
  /** How the hub shares calls among several callees of one method; by default a method has one callee. */
  share?: "" | "round_robin" | "random" | "first" | "open";
}

export interface PullOptions {
  /** Without a timeout the pull waits indefinitely. */
  timeout?: number;
  signal?: AbortSignal;
}

/** The second argument of a registered method. */
export interface CallContext {
  /** The name under which the method is registered. */
  method: string;
  /** Null for an attachment that did not arrive. */
  attachments: (Uint8Array | null)[];
  /** Aborts when no caller waits any more. */
  signal: AbortSignal;
  /** Send a progress note to the caller. */
  progress(value: unknown, text?: string): void;
  peer: Peer;
}

/** A method: its result may be a value, a `Reply`, a promise of these, or an iterable of parts. */
export type Method = (body: any, context: CallContext) => any;

export interface Result<T = any> {
  value: T;
  attachments: Uint8Array[];
}

export interface TopicEvent<T = any> {
  topic: string;
  data: T;
  /** Events that were skipped or dropped before this one. */
  missed: number;
  /** Null for an attachment that did not arrive. */
  attachments: (Uint8Array | null)[];
}

export interface Discovery {
  methods: string[];
  routes: string[];
  /** The documentation, if a method was asked for. */
  doc: string | null;
}

export interface StateChange {
  state: State;
  /** The number of the attempt to reconnect, 0 for other changes. */
  attempt: number;
  /** The error that caused the change. */
  error: Error | null;
  /** Seconds until the next attempt. */
  wait: number;
}

export interface StateEvent extends Event {
  readonly detail: StateChange;
}

export interface Variables {
  /** Variables that the hub has set at this client. */
  readonly theirs: ReadonlyMap<string, any>;
  set(name: string, value: unknown): Promise<void>;
  unset(name: string): Promise<void>;
  /** Read a variable of this session, or of the session that `peer` names. */
  get(name: string, options?: { peer?: string }): Promise<any>;
}

/** How a call failed. `ran` is "no" only if the method certainly did not run. */
export class CallError extends Error {
  constructor(
    reason: Reason,
    text?: string,
    more?: { data?: unknown; name?: string; retryAfter?: number | null; cause?: unknown },
  );
  /** The method's own name for its error; "CallError" if it has none. */
  name: string;
  reason: Reason;
  ran: Ran;
  /** The data that the method attached to its error. */
  data: any;
  /** Seconds after which a retry makes sense, or null. */
  retryAfter: number | null;
}

/** The hub cannot be reached, or the connection has ended permanently. */
export class ConnectionLost extends Error {
  constructor(text?: string);
  name: string;
}

/** The hub refuses the client, so the client does not retry. */
export class Refused extends ConnectionLost {}

/** Thrown by a registered method: the call fails with this text, name and data. */
export class Fail extends Error {
  constructor(text: string, more?: { name?: string; data?: unknown; retryAfter?: number | null });
  name: "Fail";
  /** The name of the error in protocols that have one, such as `shop.err.sold_out`. */
  errorName: string;
  data: unknown;
  retryAfter: number | null;
}

/** Returned by a registered method: a value with attachments. */
export class Reply {
  constructor(value: unknown, attachments?: Bytes[]);
  value: unknown;
  attachments: Bytes[];
}

/** A job from a work queue. Unless `done()` acknowledges it, the hub delivers it to another worker. */
export class Job {
  private constructor();
  data: any;
  attachments: (Uint8Array | null)[];
  /** Acknowledge the job; rejected with ConnectionLost if the session has ended, so that the hub redelivers it. */
  done(value?: unknown): Promise<void>;
  /** Report that the job failed, so that the hub redelivers it. */
  fail(text?: string): Promise<void>;
}

/** Events of a topic, or of all topics that match a pattern. Leaving the loop, or `close()`, unsubscribes. */
export class Subscription<T = any> implements AsyncIterableIterator<TopicEvent<T>> {
  private constructor();
  pattern: string;
  /** Reconnects since the subscription began; events may be missing at each. */
  get restored(): number;
  next(): Promise<IteratorResult<TopicEvent<T>, undefined>>;
  /** Unsubscribe. Events that wait can still be read. */
  close(): Promise<void>;
  return(): Promise<IteratorResult<TopicEvent<T>, undefined>>;
  [Symbol.asyncIterator](): this;
}

/** One connection to a hub, opened by `connect`. It reconnects by itself, and restores methods and subscriptions. */
export class Peer extends EventTarget {
  private constructor();
  /** Open a connection; `connect` is the same. */
  static open(url: string | URL, options?: ConnectOptions): Promise<Peer>;
  /** Variables of the session, which all peers can read at the hub. */
  vars: Variables;
  /** The URL of the hub. */
  get url(): string;
  get protocol(): "umq" | "lrpm-json" | "nq";
  /** The name of the session at the hub, another one after a reconnect; empty in NQ. */
  get session(): string;
  get state(): State;

  /** Call a method. An object as body is named arguments, an array positional ones. */
  call<T = any>(name: string, body?: unknown, options?: CallOptions): Promise<T>;
  /** Call a method and return its result with its attachments. */
  callReply<T = any>(name: string, body?: unknown, options?: CallOptions): Promise<Result<T>>;
  /** Call a method and yield the parts of its result. Leaving the loop cancels the call. */
  stream<T = any>(name: string, body?: unknown, options?: StreamOptions): AsyncGenerator<T, void, void>;
  publish(topic: string, data?: unknown, options?: PublishOptions): Promise<void>;
  /** Subscribe to a topic or pattern; `*` stands for one or more characters within a segment. */
  subscribe<T = any>(pattern: string, options?: SubscribeOptions): Promise<Subscription<T>>;
  /** Close a topic: its subscriptions end, and its retained value is deleted. */
  closeTopic(topic: string): Promise<void>;
  /** Register a function as a method. The registration is restored after a reconnect. */
  register(name: string, run: Method, options?: RegisterOptions): Promise<void>;
  unregister(name: string): Promise<void>;
  /** Return a token by which any peer can call the function once: `call("callback." + token)`. */
  callback(run: Method): Promise<string>;
  /** List all methods, or those below a route (`account.`), or return the documentation of a method. */
  discover(name?: string): Promise<Discovery>;
  /** Push a job to a work queue; return the number of jobs that wait there now. */
  push(queue: string, data?: unknown): Promise<number>;
  /** Wait for a job of a work queue. */
  pull(queue: string, options?: PullOptions): Promise<Job>;
  /** Close the connection permanently; subscriptions end, and pending calls are lost. */
  close(): Promise<void>;

  addEventListener(type: "state", listener: ((event: StateEvent) => void) | null, options?: ListenerOptions): void;
  addEventListener(type: string, listener: Listener, options?: ListenerOptions): void;
  removeEventListener(type: "state", listener: ((event: StateEvent) => void) | null, options?: RemoveOptions): void;
  removeEventListener(type: string, listener: Listener, options?: RemoveOptions): void;
}

// The types of the environment: those of browsers and of Node have different names.
type Listener = Parameters<EventTarget["addEventListener"]>[1];
type ListenerOptions = Parameters<EventTarget["addEventListener"]>[2];
type RemoveOptions = Parameters<EventTarget["removeEventListener"]>[2];

/**
 * Open a connection to a hub.
 *
 * @param url `umq+ws://`, `lrpm+ws://`, `nq+ws://` or `nq+http://`, then host and port; with TLS `+wss://` or
 *   `+https://`
 * @returns rejected with a TypeError if the URL or an option is invalid, with `Refused` if the hub refuses the client,
 *   with `ConnectionLost` if it cannot be reached
 */
export function connect(url: string | URL, options?: ConnectOptions): Promise<Peer>;

/** Encodings for tests; not part of the public interface. @internal */
export const wire: Readonly<Record<string, any>>;

export {}; // without this line, TypeScript exports every declaration
