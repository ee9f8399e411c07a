export const trouble = {};
