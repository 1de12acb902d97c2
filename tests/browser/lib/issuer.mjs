// An OpenID Connect issuer with two people, on another site than Fanlight: `localhost` instead of `127.0.0.1`.

import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { createServer } from "node:http";

const CLIENT = { id: "fanlight-admin", secret: "secret of the client" };
const PEOPLE = { ann: ["platform"], eve: ["others"] };

/** Starts an issuer whose client has this redirect URI. */
export async function startIssuer(redirectUri) {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const codes = new Map();
  const url = () => `http://localhost:${server.address().port}`;
  const base64url = (value) => Buffer.from(value).toString("base64url");

  const idToken = (person, nonce) => {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: url(), sub: `id-of-${person}`, aud: CLIENT.id, exp: now + 60, iat: now, nonce, preferred_username: person, groups: PEOPLE[person] };
    const message = [{ alg: "ES256", kid: "k", typ: "JWT" }, claims].map((part) => base64url(JSON.stringify(part))).join(".");
    return `${message}.${sign("sha256", message, { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
  };

  const exchange = (form, authorization) => {
    assert.equal(authorization, `Basic ${Buffer.from(`${CLIENT.id}:secret+of+the+client`).toString("base64")}`);
    const known = codes.get(form.get("code"));
    codes.delete(form.get("code"));
    if (!known || form.get("redirect_uri") !== redirectUri) return undefined;
    const challenge = createHash("sha256").update(form.get("code_verifier")).digest("base64url");
    return challenge === known.challenge ? idToken(known.person, known.nonce) : undefined;
  };

  const routes = {
    "/.well-known/openid-configuration": () => ({
      issuer: url(), authorization_endpoint: `${url()}/authorize`, token_endpoint: `${url()}/token`, jwks_uri: `${url()}/keys`,
      authorization_response_iss_parameter_supported: true,
    }),
    "/keys": () => ({ keys: [{ ...publicKey.export({ format: "jwk" }), kid: "k", use: "sig", alg: "ES256" }] }),
  };

  const server = createServer(async (request, response) => {
    const at = new URL(request.url, url());
    const json = (status, value) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    if (routes[at.pathname]) return json(200, routes[at.pathname]());
    if (at.pathname === "/authorize") {
      const asked = Object.fromEntries(at.searchParams);
      if (asked.client_id !== CLIENT.id || asked.redirect_uri !== redirectUri || asked.code_challenge_method !== "S256") return json(400, asked);
      const person = asked.person;
      if (!PEOPLE[person]) {
        const links = Object.keys(PEOPLE).map((name) => `<a href="/authorize?${new URLSearchParams({ ...asked, person: name })}">${name}</a>`);
        return response.writeHead(200, { "content-type": "text/html" }).end(`<!doctype html><link rel="icon" href="data:,"><title>Issuer</title><h1>Who are you?</h1>${links.join(" ")}`);
      }
      const code = randomBytes(16).toString("hex");
      codes.set(code, { person, nonce: asked.nonce, challenge: asked.code_challenge });
      const back = new URLSearchParams({ code, state: asked.state, iss: url() });
      return response.writeHead(302, { location: `${redirectUri}?${back}` }).end();
    }
    if (at.pathname === "/token" && request.method === "POST") {
      let body = "";
      for await (const chunk of request) body += chunk;
      const token = exchange(new URLSearchParams(body), request.headers.authorization);
      return token ? json(200, { access_token: "unused", token_type: "Bearer", id_token: token }) : json(400, { error: "invalid_grant" });
    }
    return json(404, {});
  });
  await new Promise((resolve) => server.listen(0, "localhost", resolve));
  return { url: url(), client: CLIENT, stop: () => server.close() };
}

/** Checks that an operator signs in at the issuer and returns, and that a person without a role is refused. */
export async function signInAtIssuer({ page, goTo, accessible }, { issuer, admin }) {
  await goTo("traces");
  await accessible();
  const toIssuer = async (person) => {
    await page.getByRole("button", { name: "Sign in at your organization" }).click();
    await page.waitForURL(`${issuer}/authorize?**`);
    await page.getByRole("link", { name: person }).click();
  };
  await toIssuer("eve");
  await page.getByText("eve has no role").waitFor();
  assert.equal(page.url(), `${admin}/sign-in/callback`, "the code stays in the address");
  await accessible();
  await page.getByRole("link", { name: "Back to sign-in" }).click();
  await toIssuer("ann");
  await page.locator(".live.following").waitFor();
  assert.equal(page.url(), `${admin}/ui#/traces`);
  assert.match(await page.locator(".who").innerText(), /ann\s+operator/);
  const cookies = (await page.context().cookies()).filter(({ domain }) => domain === "127.0.0.1");
  assert.deepEqual(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]), [[true, "Strict"]], "the session alone");
  assert.equal(await page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage })), "{}");
  // The answer to a sign-in that another browser has begun, as an attacker would make an operator
  // open it.
  await page.goto(`${admin}/sign-in/callback?code=x&state=y&iss=${encodeURIComponent(issuer)}`);
  await page.getByText("this sign-in did not begin in this browser").waitFor();
  await goTo("config");
  await page.getByRole("button", { name: "Reload" }).waitFor();
  // A link from another site opens the page with its session, since the page requests its data
  // itself.
  await page.goto(`${issuer}/authorize`);
  await page.evaluate((to) => location.assign(to), `${admin}/ui#/overview`);
  await page.locator(".live.following").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
}
