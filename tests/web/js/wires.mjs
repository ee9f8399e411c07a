export const wires = {};
