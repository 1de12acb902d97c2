// Requests to /api. The browser adds the session's cookie; errors have a readable message.

/** An error with a message for the page. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The response of a request; throws an ApiError otherwise. */
export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(new URL(`..${path}`, import.meta.url), { ...options, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "Fanlight does not respond. Is it still running?");
  }
  if (response.ok) return response;
  let message = `HTTP status ${response.status}`;
  try {
    message = JSON.parse(await response.text()).error ?? message;
  } catch {
    // The body has no message: use the status alone.
  }
  throw new ApiError(response.status, message);
}

/** The JSON value at a path. */
export async function get(path, query = {}, signal = undefined) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(pairs).toString();
  const response = await ask(search ? `${path}?${search}` : path, { signal });
  return JSON.parse(await response.text());
}

/** The text at a path. */
export async function text(path, signal = undefined) {
  return (await ask(path, { signal })).text();
}

/** Sends a JSON text; returns the text of the response. */
export async function post(path, body, signal = undefined) {
  const headers = { "content-type": "application/json" };
  return (await ask(path, { method: "POST", headers, body, signal })).text();
}
