/** An OpenID provider for the tests: npm's `oidc-provider`, which logs the chosen person in without asking. */

import { createServer, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";

import Provider, { type Configuration } from "oidc-provider";

/** Person at the provider. */
export interface Person {
  sub: string;
  email: string;
  name: string;
  groups: string[];
}

export const CLIENT_ID = "belfry";
export const CLIENT_SECRET = "a secret of the client";

/** A running provider. */
export class OidcProvider {
  /** The person who logs in; null refuses the login. */
  person: Person | null = null;
  readonly #people = new Map<string, Person>();
  #http: HttpServer | null = null;
  issuer = "";

  /** Starts it for a client whose dashboard has this URL. */
  static async start(dashboard: string): Promise<OidcProvider> {
    const found = new OidcProvider();
    const http = createServer();
    await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
    found.#http = http;
    found.issuer = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
    found.#serve(http, dashboard);
    return found;
  }

  #serve(http: HttpServer, dashboard: string): void {
    const configuration: Configuration = {
      clients: [
        {
          client_id: CLIENT_ID,
          client_secret: CLIENT_SECRET,
          redirect_uris: [`${dashboard}/api/v1/login/oidc/callback`],
        },
      ],
      claims: {
        openid: ["sub"],
        email: ["email", "email_verified"],
        profile: ["name"],
        groups: ["groups"],
      },
      features: { devInteractions: { enabled: false } },
      pkce: { required: () => true },
      interactions: { url: (_, { uid }) => `/interaction/${uid}` },
      // A browser that was logged in before is asked again, so that a test can change the person.
      ttl: { Session: 1, Grant: 600, Interaction: 600, AccessToken: 600, IdToken: 600 },
      findAccount: (_, id) => {
        const person = this.#people.get(id);
        if (!person) return undefined;
        const claims = { ...person, email_verified: true };
        return { accountId: id, claims: () => claims };
      },
      loadExistingGrant: async (ctx) => {
        const { client, session } = ctx.oidc;
        const grant = new ctx.oidc.provider.Grant({
          clientId: client?.clientId,
          accountId: session?.accountId,
        });
        grant.addOIDCScope("openid email profile groups");
        await grant.save();
        return grant;
      },
    };
    const provider = new Provider(this.issuer, configuration);
    const callback = provider.callback();
    http.on("request", (request, response) => {
      if (!request.url?.startsWith("/interaction/")) return void callback(request, response);
      const { person } = this;
      if (person) this.#people.set(person.sub, person);
      const result = person
        ? { login: { accountId: person.sub } }
        : { error: "access_denied", error_description: "the person has refused" };
      void provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    });
  }

  async stop(): Promise<void> {
    const http = this.#http;
    http?.closeAllConnections();
    if (http) await new Promise((resolve) => http.close(resolve));
  }
}
