/** Query strings of URLs: readable, not encoded as JSON; a repeated parameter is a list. */

export type Search = Record<string, string | string[] | undefined>;

export function parseSearch(query: string): Search {
  const search: Search = {};
  for (const [key, value] of new URLSearchParams(query)) {
    const existing = search[key];
    search[key] = existing === undefined ? value : [existing, value].flat();
  }
  return search;
}

export function stringifySearch(search: Record<string, unknown>): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(search)) {
    for (const each of [value].flat()) {
      if (typeof each === "string" && each !== "") query.append(key, each);
    }
  }
  // These characters are valid in a query and more readable unescaped.
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  return text === "" ? "" : `?${text}`;
}

/** Returns the value of a parameter that may occur once. */
export function text(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value || undefined;
}
