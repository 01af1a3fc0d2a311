/** How often the page was reloaded because a piece of its code was not there. */

/** Names of builds and pieces, each with a reload, as a list in JSON. */
const RELOADED_KEY = "belfry.reloaded";

type ReloadStorage = Pick<Storage, "getItem" | "setItem">;

/**
 * Whether the page may be reloaded because `piece` of `build` is not there; counts it as reloaded if so.
 *
 * Each piece of a build reloads the page once: one that is never there must not reload it for ever, nor must servers of
 * two versions that answer in turn. `build` is part of the name because some browsers do not name the piece.
 */
export function mayReload(storage: ReloadStorage, build: string, chunk: string): boolean {
  const name = `${build} ${chunk}`;
  try {
    const reloaded = JSON.parse(storage.getItem(RELOADED_KEY) ?? "[]") as unknown;
    const names = Array.isArray(reloaded) ? (reloaded as unknown[]) : [];
    if (names.includes(name)) return false;
    storage.setItem(RELOADED_KEY, JSON.stringify([...names, name]));
    return true;
  } catch {
    // Without a storage nothing would end the reloads.
    return false;
  }
}
