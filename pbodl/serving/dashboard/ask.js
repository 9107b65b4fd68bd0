// Requests to the server, with the token if it requires one; an error carries a message for the user.

const KEPT = "pbodl-token";
export const tokenWanted = document.querySelector("meta[name=pbodl-token]").content === "required";

export class Problem extends Error {
  constructor(status, message, field) { super(message); Object.assign(this, { status, field }); }
}

export const hasToken = () => !tokenWanted || sessionStorage.getItem(KEPT) !== null;
export const keepToken = (token) => (token === null ? sessionStorage.removeItem(KEPT) : sessionStorage.setItem(KEPT, token));

export async function ask(path, body) {
  const headers = tokenWanted ? { Authorization: `Bearer ${sessionStorage.getItem(KEPT)}` } : {};
  const options = body === undefined ? { headers } : { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(8000) });
  } catch {
    throw new Problem(0, "The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Problem(response.status, told.error?.message ?? `The server answered ${response.status}.`, told.error?.field ?? null);
}
