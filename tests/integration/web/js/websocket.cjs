// Gives an older Node the WebSocket of the package `ws`.
globalThis.WebSocket ??= require("ws");
